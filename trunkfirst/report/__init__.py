"""Figures and one-file HTML pages of runs, comparisons, sweeps and studies. Reads files only."""

from .pages import write_report
from .study_page import SensorPicture, write_sensor_picture, write_study
from .sweep_page import write_sweep

__all__ = ["SensorPicture", "write_report", "write_sensor_picture", "write_study", "write_sweep"]
