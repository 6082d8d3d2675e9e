"""samebits: the same integer programs on every device, compared bit for bit with exact arithmetic."""

__version__ = "0.1.0"
