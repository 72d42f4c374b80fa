"""The operator as a scikit-learn regressor: in a pipeline, under a grid search.

    python examples/pipeline.py            needs: pip install 'trunkfirst[sklearn]'

A beam on two supports bends under a load: u'''' = f with u = u'' = 0 at both ends. With f = sum_k a_k sin(k pi x)
the exact solution is u = sum_k a_k sin(k pi x) / (k pi)^4. The load is measured with noise at 50 places; principal
components remove most of the noise before the operator sees it.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import trunkfirst


def beams(samples: int, x: np.ndarray, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Loads, measured with one per cent of noise, and exact displacements."""
    rng, k = np.random.default_rng(seed), np.arange(1, 6)
    a = rng.normal(size=(samples, len(k)))
    modes = np.sin(np.pi * k[:, None] * x)
    return a @ modes + 0.01 * rng.normal(size=(samples, len(x))), a / (k * np.pi) ** 4 @ modes


def main(picture: Path | None = None, *, components: tuple[int, ...] = (3, 5, 20)) -> dict[str, float]:
    x = np.linspace(0, 1, 52)[1:-1]  # without the ends, which never move
    loads, bends = beams(160, x, seed=0)
    new_loads, new_bends = beams(50, x, seed=1)

    # y has a column for every point.
    model = make_pipeline(
        PCA(20), trunkfirst.TwoStepDeepONet(points=x, trunk=trunkfirst.ModesTrunk(5), branch="linear")
    )
    # The number of principal components by cross-validation.
    search = GridSearchCV(model, {"pca__n_components": components}).fit(loads, bends)
    print(f"components chosen: {search.best_params_['pca__n_components']}, R^2 {search.best_score_:.5f}")

    predicted = search.predict(new_loads)
    error = float(np.linalg.norm(predicted - new_bends) / np.linalg.norm(new_bends))
    print(f"relative test error {error:.1e}, with noise of 1e-2 in the loads")
    if picture is not None:
        figure, panels = plt.subplots(1, 2, figsize=(7, 2.8), layout="constrained")
        panels[0].plot(x, new_loads[:3].T)
        panels[0].set(title="three loads as measured", xlabel="x")
        panels[1].plot(x, new_bends[:3].T, color="0.75", lw=5)
        panels[1].plot(x, predicted[:3].T)
        panels[1].set(title="displacements: exact in grey", xlabel="x")
        figure.savefig(picture, dpi=80)
    return {"test": error, "lost score": 1 - float(search.best_score_)}


if __name__ == "__main__":
    main(Path("pipeline.png"))
