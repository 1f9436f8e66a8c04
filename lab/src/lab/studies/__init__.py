"""The table of studies, in the order in which `lab run all` takes them; titles and sources are in lab.records.STUDIES."""

from __future__ import annotations

from lab.studies.base import Study
from lab.studies.boot import Boot
from lab.studies.failure import Failure
from lab.studies.formats import Formats
from lab.studies.layouts import Layouts
from lab.studies.matrix import Matrix
from lab.studies.metadata import Metadata
from lab.studies.migrate import Migrate
from lab.studies.objects import Objects
from lab.studies.provision import Provision
from lab.studies.vm import Vm

KINDS: dict[str, type[Study]] = {s.name: s for s in (Matrix, Boot, Vm, Formats, Provision, Migrate, Layouts, Metadata, Objects, Failure)}
