from python_backend.model import TritonPythonModel  # noqa: F401 - a python-based backend is this one name
