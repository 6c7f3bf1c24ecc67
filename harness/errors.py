"""Our errors: one base, an exit code for each kind.

A message says what, the value, and what is allowed or the command that helps. Foreign errors
become ours at the edge, chained with `from`.
"""


class BakeoffError(Exception):
    """Base of all our errors; takes one string, so that it survives pickling."""

    exit_code = 1


class ConfigError(BakeoffError):
    """Bad config, data or machine setup; nothing was measured."""

    exit_code = 2


class StoreFormatError(ConfigError):
    """A run folder that is damaged, or newer than this version reads."""


class EnvironmentInstallError(ConfigError):
    """An engine's environment or model could not be installed."""


class InvalidRunError(BakeoffError):
    """Measured, but not valid; or a sweep with good and failed jobs."""

    exit_code = 3


class NotReadyError(BakeoffError):
    """The server did not become ready in time, or ended before it was."""

    exit_code = 4


class EngineDiedError(BakeoffError):
    """The server died during the run, or left processes behind."""

    exit_code = 5


class StoreWriteError(BakeoffError):
    """Results could not be written."""

    exit_code = 6


class NoAnswerError(BakeoffError):
    """Not comparable, nothing fits, or not enough evidence."""

    exit_code = 7


class InterruptedRunError(BakeoffError):
    """Interrupted by the user; what was measured is kept."""

    exit_code = 130
