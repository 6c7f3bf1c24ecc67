"""pip's own settings as `uv` flags, so that an engine installs wherever pip itself can.

uv reads none of pip's files or variables; in a closed network they are all there is. The files
are read here as pip reads them, because pip need not be installed beside us (pip documentation,
"Configuration": global, user, site, then PIP_CONFIG_FILE, which puts out the user's; section
[install] over [global]; environment over all).
"""

import configparser
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

_TRUE = frozenset({"1", "true", "yes", "on", "y", "t"})
_UV_INDEX = ("UV_DEFAULT_INDEX", "UV_INDEX_URL")


@dataclass(frozen=True, slots=True, kw_only=True)
class UvSettings:
    """`flags` for `uv pip install`, and `env` to set where the user has not set it already."""

    flags: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


def config_files(env: Mapping[str, str]) -> list[Path]:
    """Where pip's configuration lies, the weakest first; they need not exist."""
    own = env.get("PIP_CONFIG_FILE")
    if own == os.devnull:
        return []
    home = Path(env.get("HOME") or Path.home())
    xdg = env.get("XDG_CONFIG_HOME")
    shared = (env.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)
    user = Path(xdg) if xdg else home / ".config"
    if sys.platform == "darwin":
        shared = ["/Library/Application Support"]
        mac = home / "Library/Application Support"
        user = mac if (mac / "pip").is_dir() else user
    files = [Path(folder) / "pip/pip.conf" for folder in shared if folder]
    files.append(Path("/etc/pip.conf"))
    if not (own and Path(own).exists()):
        files += [home / ".pip/pip.conf", user / "pip/pip.conf"]
    files.append(Path(sys.prefix) / "pip.conf")
    return [*files, Path(own)] if own else files


def _key(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def pip_settings(env: Mapping[str, str]) -> dict[str, str]:
    """What `pip install` would use, by pip's option names, such as `find-links`."""
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for path in config_files(env):
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            continue  # pip itself would refuse it: nothing to be had from it
        for section in sections:
            if parser.has_section(section):
                sections[section] |= {_key(k): v for k, v in parser.items(section)}
    variables = {_key(k[4:]): v for k, v in env.items() if k.startswith("PIP_") and v}
    variables.pop("config-file", None)
    return sections["global"] | sections["install"] | variables


def _is_missing_folder(url: str) -> bool:
    """Whether a `file:` URL or a path leads nowhere: pip warns and goes on, uv may not."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return not Path(url2pathname(parts.path)).exists()
    return not parts.scheme and not Path(url).expanduser().exists()


def _absolute(value: str) -> str:
    """A path made absolute, since uv runs in another folder; a URL stays as it is."""
    return value if urlsplit(value).scheme else str(Path(value).expanduser().absolute())


def _index_flags(settings: Mapping[str, str], env: Mapping[str, str]) -> list[str]:
    if settings.get("no-index", "").lower() in _TRUE:
        return ["--no-index"]
    flags = []
    index = settings.get("index-url", "")
    if index and not any(env.get(name) for name in _UV_INDEX):
        flags += ["--default-index", index]
    extra = [url for url in settings.get("extra-index-url", "").split() if url]
    for url in extra:
        if not _is_missing_folder(url):
            flags += ["--extra-index-url", url]
    # pip takes the best version of all indexes; uv by default only looks at the first that
    # knows the name, which may hold a few old files.
    return [*flags, "--index-strategy", "unsafe-best-match"] if extra else flags


def uv_settings(env: Mapping[str, str]) -> UvSettings:
    """Translate pip's settings under this environment; values may hold several words."""
    settings = pip_settings(env)
    flags = _index_flags(settings, env)
    for folder in settings.get("find-links", "").split():
        if not _is_missing_folder(folder):
            flags += ["--find-links", _absolute(folder)]
    for path in settings.get("constraint", "").split():
        flags += ["--constraint", _absolute(path)]
    for host in settings.get("trusted-host", "").split():
        flags += ["--allow-insecure-host", host]
    wanted = {
        "SSL_CERT_FILE": settings.get("cert"),
        "HTTPS_PROXY": settings.get("proxy"),
        "HTTP_PROXY": settings.get("proxy"),
        "UV_HTTP_TIMEOUT": settings.get("timeout") or settings.get("default-timeout"),
    }
    new = {name: value for name, value in wanted.items() if value and not env.get(name)}
    return UvSettings(flags=tuple(flags), env=new)
