"""What people write in YAML for us to read. A key that stands there twice is a mistake: libraries take the last one,
and the rules of the first are silently not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError


class _Loader(yaml.SafeLoader):
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """As SafeLoader does, before keys that are merged (<<) stand beside a mapping's own. Raises ConstructorError
        for a key that comes twice."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        keys = set[str]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in keys:
                    raise ConstructorError(problem="a key stands here twice", problem_mark=key.start_mark)
                keys.add(key.value)
        return node


def read_yaml(path: Path) -> Any:
    """What a file says. Raises OSError, ValueError, yaml.YAMLError and RecursionError."""
    return yaml.load(path.read_bytes(), Loader=_Loader)  # noqa: S506 - a safe one
