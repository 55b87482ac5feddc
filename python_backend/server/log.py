"""Python's `logging` into tritonserver's log: every module logs under its own name."""

from __future__ import annotations

import logging

import triton_python_backend_utils as pb_utils


class TritonHandler(logging.Handler):
    """Writes a record at the nearest of Triton's levels."""

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if record.levelno >= logging.ERROR:
            pb_utils.Logger.log_error(text)
        elif record.levelno >= logging.WARNING:
            pb_utils.Logger.log_warn(text)
        elif record.levelno >= logging.INFO:
            pb_utils.Logger.log_info(text)
        else:
            pb_utils.Logger.log_verbose(text)


def install(model: str) -> logging.Logger:
    """The project's logger of this process; its lines start with the model's name."""
    logger = logging.getLogger("python_backend")
    handler = TritonHandler()
    handler.setFormatter(logging.Formatter(f"{model}: %(name)s: %(message)s"))
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return logger
