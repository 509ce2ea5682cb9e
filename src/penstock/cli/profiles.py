"""Profiles: clusters by name, in `profiles.toml` in the user's configuration folder.

current = "local"

[profiles.local]
bootstrap = "localhost:9092"

[profiles.production]
bootstrap = "kafka.example.com:9093"
config = { "security.protocol" = "SSL" }
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.cli.mistakes import Mistake


@dataclass(frozen=True)
class Profile:
    """A cluster: its address, and settings for librdkafka."""

    bootstrap: str
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Profiles:
    path: Path
    current: str | None
    profiles: dict[str, Profile]

    @classmethod
    def load(cls) -> Profiles:
        """What is in the file; nothing if there is none."""
        path = profiles_path()
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
            profiles = {
                name: Profile(str(one["bootstrap"]), {key: str(value) for key, value in one.get("config", {}).items()})
                for name, one in content.get("profiles", {}).items()
            }
        except FileNotFoundError:
            return cls(path, None, {})
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
            raise Mistake(f"{path} is no file of profiles ({error}); correct it or remove it") from None
        return cls(path, content.get("current"), profiles)

    def save(self) -> None:
        lines = [] if self.current is None else [f"current = {_quoted(self.current)}", ""]
        for name, profile in sorted(self.profiles.items()):
            lines += [f"[profiles.{_quoted(name)}]", f"bootstrap = {_quoted(profile.bootstrap)}"]
            if profile.config:
                pairs = ", ".join(f"{_quoted(key)} = {_quoted(value)}" for key, value in profile.config.items())
                lines.append(f"config = {{ {pairs} }}")
            lines.append("")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".tmp")
        draft.touch(mode=0o600)  # a profile may hold a password
        draft.write_text("\n".join(lines), encoding="utf-8")
        draft.replace(self.path)

    def get(self, name: str) -> Profile:
        if name not in self.profiles:
            known = ", ".join(sorted(self.profiles)) or "none yet"
            raise Mistake(
                f"there is no profile {name!r} (there are: {known}); "
                f"make it with 'penstock profile set {name} --bootstrap HOST:PORT'"
            )
        return self.profiles[name]


def profiles_path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "penstock" / "profiles.toml"


def _quoted(text: str) -> str:
    """A TOML string. JSON's escapes are a subset of TOML's."""
    return json.dumps(text, ensure_ascii=False)
