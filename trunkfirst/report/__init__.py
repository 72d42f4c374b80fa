"""Figures and the one-file HTML report of a run or a comparison. Reads files only."""

from ._report import write_report
from ._sensors import SensorPicture, write_sensor_picture
from ._study import write_study
from ._sweep import write_sweep

__all__ = ["SensorPicture", "write_report", "write_sensor_picture", "write_study", "write_sweep"]
