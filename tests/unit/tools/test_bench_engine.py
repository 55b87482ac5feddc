"""The engine benchmark measures both engines in turns and lists as absent what is not there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny_models import TinyModel, tiny_model_dir
from tools import bench_engine, engine_peers
from tools.engine_peers import PEERS, Peer, PeerAbsent, PeerJob, Source, installed_peer, peer_times_ms
from tools.peer_environments import PeerEnvironmentError
from tools.step_timing import StepShape

MODEL_DIR = str(tiny_model_dir(TinyModel()))
QUICK = [MODEL_DIR, "--batches", "1,2", "--contexts", "20", "--repeats", "2", "--threads", "1"]
JOB = PeerJob("model", 2, 20, 3, 1)


@pytest.fixture(autouse=True)
def small_stream(monkeypatch):
    monkeypatch.setattr(bench_engine, "STREAM_BYTES", 1 << 20)


def fake_peer(monkeypatch, program, module="json"):
    monkeypatch.setattr(engine_peers, "PEERS", {"llama_cpp": Peer(module, "int4", program)})


def test_every_engine_and_shape_has_a_row_with_its_floor(capsys):
    assert bench_engine.main([*QUICK, "--dtypes", "auto,int8", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)

    rows = document["rows"]
    engines = [("ours", "float32"), ("ours", "int8"), ("transformers", "float32")]
    assert [(row["engine"], row["dtype"], row["batch"]) for row in rows] == [
        (engine, dtype, batch) for batch in (1, 2) for engine, dtype in engines
    ]
    assert all(row["context"] == 20 and row["step_ms"] > 0 and row["floor_ms"] >= 0 for row in rows)
    assert rows[0]["tokens_per_s"] == pytest.approx(1e3 / rows[0]["step_ms"], rel=0.01)
    assert set(document["absent"]) == set(PEERS)


def test_the_table_for_people_names_the_absent(capsys):
    assert bench_engine.main([*QUICK, "--dtypes", "float32"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 4 + len(PEERS)
    assert "vllm absent: neither --install vllm nor --peer vllm=PYTHON:MODEL" in lines[-3]


def test_a_step_of_transformers_leaves_its_cache_as_long_as_it_was():
    network = bench_engine.Transformers(MODEL_DIR)
    step = network.step_of(StepShape(2, 20))
    cache = step.__wrapped__.__closure__

    step()
    lengths = [cell.cell_contents.get_seq_length() for cell in cache if hasattr(cell.cell_contents, "crop")]
    assert lengths == [20]


def test_a_model_that_is_not_there_is_named(capsys, tmp_path):
    assert bench_engine.main([str(tmp_path)]) == 2
    assert f"{tmp_path}/config.json" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["vllm", "vllm=python", "other=python:model"])
def test_a_peer_that_is_not_told_in_full_is_refused(capsys, text):
    with pytest.raises(SystemExit):
        bench_engine.main([*QUICK, "--peer", text])
    assert "NAME=PYTHON:MODEL" in capsys.readouterr().err


def test_a_peers_program_gets_the_job_and_answers_milliseconds(monkeypatch):
    fake_peer(monkeypatch, "def times_ms(job):\n    return [job['batch'], job['context'], 0.5]")

    assert peer_times_ms("llama_cpp", sys.executable, JOB) == [2, 20, 0.5]


@pytest.mark.parametrize(
    ("program", "module", "reason"),
    [
        ("", "no_such_module", "no_such_module cannot be imported"),
        ("def times_ms(job):\n    raise ValueError('no model')", "json", "json: ValueError: no model"),
        ("import os; os._exit(3)", "json", "json: no message"),
    ],
)
def test_a_peer_that_cannot_run_is_absent_with_the_reason(monkeypatch, program, module, reason):
    fake_peer(monkeypatch, program, module)

    with pytest.raises(PeerAbsent, match=reason):
        peer_times_ms("llama_cpp", sys.executable, JOB)


def test_a_python_that_is_not_there_is_absent():
    with pytest.raises(PeerAbsent, match="nowhere"):
        peer_times_ms("llama_cpp", "nowhere/python", JOB)


def test_a_peer_that_was_named_stands_in_the_table(capsys, monkeypatch):
    fake_peer(monkeypatch, "def times_ms(job):\n    return [4.0 * job['batch']]")

    peer = f"llama_cpp={sys.executable}:model.gguf"
    assert bench_engine.main([*QUICK, "--dtypes", "float32", "--peer", peer, "--json"]) == 0
    rows = [row for row in json.loads(capsys.readouterr().out)["rows"] if row["engine"] == "llama_cpp"]
    assert [(row["batch"], row["step_ms"], row["tokens_per_s"]) for row in rows] == [(1, 4, 250), (2, 8, 250)]
    assert rows[0]["dtype"] == "int4"


@pytest.mark.parametrize("name", PEERS)
def test_every_peers_program_is_python(name):
    compile(engine_peers.FRAME.format(program=PEERS[name].program), name, "exec")


def fake_environment(monkeypatch, made):
    monkeypatch.setattr(engine_peers, "environment_python", made)


def test_an_installed_peer_is_measured_in_the_environment_made_for_it(capsys, monkeypatch):
    fake_peer(monkeypatch, "def times_ms(job):\n    return [float(job['model'].endswith('.gguf'))]")
    fake_environment(monkeypatch, lambda name, tell: tell(f"installing {name}") or sys.executable)

    assert bench_engine.main([*QUICK, "--install", "llama_cpp", "--gguf", "m.gguf", "--json"]) == 0
    told = capsys.readouterr()
    rows = [row for row in json.loads(told.out)["rows"] if row["engine"] == "llama_cpp"]
    assert [row["step_ms"] for row in rows] == [1.0, 1.0]
    assert "installing llama_cpp" in told.err


def test_every_peer_reads_the_model_in_its_own_form(monkeypatch, tmp_path):
    calls = []
    fake_environment(monkeypatch, lambda name, tell: "python")
    done = subprocess.CompletedProcess([], 0, "", "")
    monkeypatch.setattr(engine_peers, "_ran", lambda python, arguments: calls.append(arguments) or done)
    source = Source(Path("models/smol"), Path("m.gguf"), tmp_path)
    models = {name: installed_peer(name, source, calls.append)[1] for name in PEERS}

    built = str(tmp_path / "smol-onnx-int4")
    assert models == {"vllm": "models/smol", "onnx_int4": built, "llama_cpp": "m.gguf"}
    assert calls[1][-4:] == ["-i", "models/smol", "-o", built]


def test_a_peer_that_cannot_be_installed_or_converted_is_absent(monkeypatch, tmp_path):
    def refuse(name, tell):
        raise PeerEnvironmentError("no such wheel")

    source = Source(Path("models/smol"), None, tmp_path)
    fake_environment(monkeypatch, refuse)
    with pytest.raises(PeerAbsent, match="no such wheel"):
        installed_peer("vllm", source, print)
    fake_environment(monkeypatch, lambda name, tell: "python")
    with pytest.raises(PeerAbsent, match="name it with --gguf"):
        installed_peer("llama_cpp", source, print)
    failed = subprocess.CompletedProcess([], 1, "", "first\nno such model")
    monkeypatch.setattr(engine_peers, "_ran", lambda python, arguments: failed)
    with pytest.raises(PeerAbsent, match=r"onnxruntime_genai.models.builder: no such model"):
        installed_peer("onnx_int4", source, print)


def test_an_unknown_peer_is_not_installed(capsys):
    with pytest.raises(SystemExit):
        bench_engine.main([*QUICK, "--install", "other"])
    assert "of vllm, onnx_int4, llama_cpp" in capsys.readouterr().err
