"""joblib, scikit-learn, SciPy and pandas: pickles in which classes of these packages are data."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np


def _data() -> tuple[Any, Any]:
    values = np.random.default_rng(0).standard_normal((40, 4))
    return values, (values[:, 0] > 0).astype(int)


def joblib_files(folder: Path) -> None:
    import joblib

    several = {
        "weights": np.arange(6000.0).reshape(60, 100),
        "bias": np.ones(3, np.float32),
        "names": ["a", "b"],
    }
    joblib.dump(several, folder / "plain.joblib")
    joblib.dump(
        [np.asfortranarray(np.ones((30, 40))), np.array(["a", {"b": 1}], object)], folder / "mixed.pkl"
    )
    joblib.dump({"epoch": 3, "text": "no arrays"}, folder / "no-arrays.joblib")
    for method in ("zlib", "gzip", "bz2", "lzma", "xz"):
        joblib.dump(several, folder / f"{method}.joblib", compress=(method, 3))
    joblib.dump(several, folder / "by-suffix.pkl.gz")
    joblib.dump(several, folder / "by-suffix.z")


def _estimators() -> dict[str, Any]:
    from sklearn import (
        cluster,
        decomposition,
        ensemble,
        gaussian_process,
        linear_model,
        mixture,
        naive_bayes,
        neighbors,
        neural_network,
        preprocessing,
        svm,
        tree,
    )
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.isotonic import IsotonicRegression
    from sklearn.multiclass import OneVsRestClassifier

    return {
        "linear": linear_model.LinearRegression(),
        "logistic": linear_model.LogisticRegression(),
        "ridge": linear_model.RidgeCV(),
        "lasso": linear_model.Lasso(),
        "descent": linear_model.SGDClassifier(),
        "vectors": svm.SVC(probability=False),
        "linear-vectors": svm.LinearSVC(),
        "tree": tree.DecisionTreeClassifier(),
        "forest": ensemble.RandomForestClassifier(5),
        "extra-trees": ensemble.ExtraTreesRegressor(5),
        "boosting": ensemble.GradientBoostingClassifier(n_estimators=5),
        "histograms": ensemble.HistGradientBoostingClassifier(max_iter=5),
        "adaboost": ensemble.AdaBoostClassifier(n_estimators=3),
        "isolation": ensemble.IsolationForest(n_estimators=5),
        "neighbours": neighbors.KNeighborsClassifier(3),
        "ball-tree": neighbors.KNeighborsRegressor(3, algorithm="ball_tree"),
        "bayes": naive_bayes.GaussianNB(),
        "perceptrons": neural_network.MLPClassifier((8,), max_iter=5),
        "process": gaussian_process.GaussianProcessRegressor(),
        "mixture": mixture.GaussianMixture(2),
        "means": cluster.KMeans(2, n_init=1),
        "dbscan": cluster.DBSCAN(),
        "components": decomposition.PCA(2),
        "matrix": decomposition.TruncatedSVD(2),
        "scaler": preprocessing.StandardScaler(),
        "quantiles": preprocessing.QuantileTransformer(n_quantiles=10),
        "polynomials": preprocessing.PolynomialFeatures(),
        "calibrated": CalibratedClassifierCV(naive_bayes.GaussianNB(), cv=2),
        "discriminant": LinearDiscriminantAnalysis(),
        "one-against-rest": OneVsRestClassifier(linear_model.LogisticRegression()),
        "isotonic": IsotonicRegression(),
    }


def sklearn_files(folder: Path) -> None:
    """Each estimator after training, by turns as a pickle and by joblib."""
    import joblib

    values, labels = _data()
    for index, (name, estimator) in enumerate(_estimators().items()):
        estimator.fit(values[:, 0] if name == "isotonic" else values, labels)
        if index % 2:
            joblib.dump(estimator, folder / f"{name}.joblib")
        else:
            (folder / f"{name}.pkl").write_bytes(pickle.dumps(estimator))


def sklearn_pipelines(folder: Path) -> None:
    import joblib
    import pandas as pd
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, LabelEncoder, OneHotEncoder, StandardScaler

    values, labels = _data()
    texts = ["a cat", "a dog", "two dogs", "no cat"] * 10
    frame = pd.DataFrame({"size": values[:, 0], "kind": ["x", "y"] * 20})
    columns = ColumnTransformer(
        [("n", make_pipeline(SimpleImputer(), StandardScaler()), ["size"]), ("c", OneHotEncoder(), ["kind"])]
    )
    made = {
        "pipeline": make_pipeline(StandardScaler(), LogisticRegression()).fit(values, labels),
        "columns": make_pipeline(columns, LogisticRegression()).fit(frame, labels),
        "texts": make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, labels),
        "counts": CountVectorizer(ngram_range=(1, 2)).fit(texts),
        "search": GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2).fit(values, labels),
        "labels": LabelEncoder().fit(["a", "b"]),
        "function": FunctionTransformer(np.log1p).fit(np.abs(values)),
    }
    for name, fitted in made.items():
        joblib.dump(fitted, folder / f"{name}.joblib", compress=3 if name == "columns" else 0)
        (folder / f"{name}.pkl").write_bytes(pickle.dumps(fitted, protocol=4))


def scipy_files(folder: Path) -> None:
    from scipy import interpolate, sparse, spatial, stats

    eye = sparse.eye_array(5, format="csr")
    for kind in ("csr", "csc", "coo", "dia", "lil", "dok", "bsr"):
        (folder / f"{kind}.pkl").write_bytes(pickle.dumps(eye.asformat(kind)))
    (folder / "matrix.pkl").write_bytes(pickle.dumps(sparse.csr_matrix(np.eye(3))))
    sparse.save_npz(folder / "sparse.npz", eye)
    made = {
        "spline": interpolate.CubicSpline(np.arange(5.0), np.arange(5.0) ** 2),
        "interpolated": interpolate.interp1d(np.arange(5.0), np.arange(5.0)),
        "tree": spatial.cKDTree(np.ones((4, 2))),
        "rotation": spatial.transform.Rotation.from_euler("z", 90, degrees=True),
        "frozen": stats.norm(0, 1),
        "density": stats.gaussian_kde(np.arange(5.0)),
    }
    for name, value in made.items():
        (folder / f"{name}.pkl").write_bytes(pickle.dumps(value))


def pandas_files(folder: Path) -> None:
    import pandas as pd

    dates = pd.date_range("2024-01-01", periods=3, tz="Europe/Berlin")
    frames = {
        "numbers": pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]}),
        "texts": pd.DataFrame({"t": ["x", "y", None]}),
        "categories": pd.DataFrame({"c": pd.Categorical(["x", "y", "x"], ordered=True)}),
        "zones": pd.DataFrame({"v": [1, 2, 3]}, index=dates),
        "levels": pd.DataFrame(
            {"v": [1, 2]}, index=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["x", "y"])
        ),
        "missing": pd.DataFrame({"i": pd.array([1, None], "Int64"), "b": pd.array([True, None], "boolean")}),
        "intervals": pd.DataFrame(
            {"i": pd.cut([1, 2, 3], 2), "p": pd.period_range("2024", periods=3, freq="M")}
        ),
        "sparse": pd.DataFrame({"s": pd.arrays.SparseArray([0, 0, 1])}),
        "times": pd.DataFrame({"d": pd.to_timedelta([1, 2], "D"), "w": pd.to_datetime(["2024-01-01", None])}),
        "objects": pd.DataFrame({"o": [{"a": 1}, [1], None]}),
        "series": pd.Series([1, 2], name="s", index=["a", "b"]),
        "index": pd.Index(["a", "b"]),
        "empty": pd.DataFrame(),
    }
    for name, frame in frames.items():
        pd.to_pickle(frame, folder / f"{name}.pkl")
    frames["numbers"].to_pickle(folder / "compressed.pkl.gz")
    values = [
        pd.Timestamp("2024-01-01", tz="UTC"),
        pd.Timedelta(1, "D"),
        pd.NaT,
        pd.NA,
        pd.offsets.MonthEnd(2),
    ]
    pd.to_pickle(values, folder / "scalars.pickle")


WRITERS = {
    "joblib": joblib_files,
    "sklearn": sklearn_files,
    "sklearn-pipelines": sklearn_pipelines,
    "scipy": scipy_files,
    "pandas": pandas_files,
}
