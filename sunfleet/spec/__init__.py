"""The fleet file: what people write, read strictly, with every problem at once and its place.

`parse` takes YAML text, `parse_body` the same as JSON (a Temporal update); both give a `FleetSpec`. `accepted`
reads a body that was accepted before, without asking the rules again.
"""

from sunfleet.spec.quantities import duration as duration
from sunfleet.spec.reading import accepted as accepted
from sunfleet.spec.reading import body as body
from sunfleet.spec.reading import parse as parse
from sunfleet.spec.reading import parse_body as parse_body
from sunfleet.spec.shape import json_schema as json_schema
