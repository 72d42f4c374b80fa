"""Regressors: records that fit the branch."""
