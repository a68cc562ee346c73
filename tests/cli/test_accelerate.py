"""`tradewind accelerate` with flows files: plans, advice against a real server, and errors."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.servers.process import free_port
from tradewind.cli.main import main

pytest.importorskip("tomllib")

FLOWS = """\
budget = "20 USD"
period = "1d"
machine_time = "2h"
regions = ["aws:us-east-1", "aws:ap-southeast-1"]

[[flow]]
name = "backup"
source = "aws:us-east-1"
destination = "backup.example.org:443"
destination_at = [1.35, 103.8]
destination_rate = "1Gbit/s"
size = "2 GB"
every = "6h"
"""
BODY = b"x" * 200_000


@pytest.fixture
def flows(tmp_path: Path) -> Path:
    path = tmp_path / "flows.toml"
    path.write_text(FLOWS)
    return path


class Files(http.server.BaseHTTPRequestHandler):
    """Serves one file."""

    def do_GET(self) -> None:
        found = self.path == "/large.bin"
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(BODY) if found else 0))
        self.end_headers()
        if found:
            self.wfile.write(BODY)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"127.0.0.1:{served.server_port}"
    served.shutdown()
    served.server_close()
    thread.join()


def test_a_flows_file_is_placed_and_its_problem_kept(
    flows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "problem.json"
    words = ["accelerate", "plan", "--algorithm", "2p", "--json"]
    assert main([*words, "--flows", str(flows), "--write-problem", str(kept)]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["acceleration"] > 2 and plan["cost_cents"] <= 2000
    assert main([*words, "--problem", str(kept)]) == 0
    again = json.loads(capsys.readouterr().out)
    tuned_s = plan.pop("tuned_total_fct_s")
    assert {**plan, "solve_s": 0} == {**again, "solve_s": 0}
    assert main(["accelerate", "plan", "--algorithm", "2p", str(flows)]) == 0
    (free,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("free ")]
    assert tuned_s < plan["direct_total_fct_s"] / 2 and "`tradewind accelerate advise`" in free


def test_a_flows_file_is_named_once(flows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("plan", "up"):
        assert main(["accelerate", action, str(flows), "--flows", str(flows)]) == 2
        assert "name the flows file once" in capsys.readouterr().err
        assert main(["accelerate", action, str(flows), "other.toml"]) == 2
        assert "takes one flows file" in capsys.readouterr().err
    assert main(["accelerate", "up", "missing.toml"]) == 2
    assert "missing.toml" in capsys.readouterr().err
    assert main(["accelerate", "up", str(flows), "--resume", "x"]) == 2
    assert "--resume starts the same flows" in capsys.readouterr().err


def test_advice_for_a_file_begins_with_what_is_free(flows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accelerate", "advise", "--flows", str(flows), "--algorithm", "2p"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first_words = [line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")]
    assert first_words[:4] == ["now", "free", "proxies", "both"]
    assert "limited by the window" in lines[1]
    assert any("which costs nothing" in line for line in lines)
    assert '  sysctl -w net.ipv4.tcp_rmem="4096 131072 67108864"' in lines


def test_a_flow_that_does_not_fit_the_period_is_noted(flows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flows.write_text(FLOWS.replace('"2 GB"', '"20 TB"'))
    assert main(["accelerate", "advise", "--flows", str(flows), "--algorithm", "1p", "--json"]) == 0
    [note] = json.loads(capsys.readouterr().out)["notes"]
    assert note.startswith("backup needs more time than the period has")


def test_an_address_is_measured(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accelerate", "advise", server, "--json"]) == 0
    [flow] = json.loads(capsys.readouterr().out)["flows"]
    assert flow["measured"]["address"] == server and 0 < flow["rtt_ms"] < 1000
    assert "download" not in flow["measured"]
    assert main(["accelerate", "advise", f"http://{server}/large.bin", "--json"]) == 0
    [flow] = json.loads(capsys.readouterr().out)["flows"]
    assert flow["measured"]["download"]["received_bytes"] == len(BODY)


def test_a_flow_of_this_machine_is_measured(server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "flows.toml"
    flow = f'name = "f"\nsource = "{server}"\ndestination = "here"\nsize = "1 GB"'
    path.write_text(f'budget = "1 USD"\n\n[[flow]]\n{flow}\n')
    assert main(["accelerate", "advise", "--flows", str(path), "--json"]) == 0
    advice = json.loads(capsys.readouterr().out)
    assert advice["flows"][0]["measured"]["address"] == server
    assert advice["proxies_cents"] is None and "no cloud is configured" in advice["notes"][0]


def test_an_unreachable_address_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    assert main(["accelerate", "advise", f"127.0.0.1:{port}"]) == 1
    assert capsys.readouterr().err.splitlines()[0] == f"error: 127.0.0.1:{port} cannot be reached: Connection refused"


def test_a_flow_whose_round_trip_cannot_be_measured_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The connection that failed is named, not the round trip that it would have told."""
    port = free_port()
    path = tmp_path / "flows.toml"
    path.write_text(
        f'budget = "1 USD"\n\n[[flow]]\nname = "f"\nsource = "here"\ndestination = "127.0.0.1:{port}"\nsize = "1 GB"\n'
    )
    assert main(["accelerate", "advise", "--flows", str(path)]) == 1
    error, hint = capsys.readouterr().err.splitlines()
    assert error == f"error: {path}: flow f: 127.0.0.1:{port} cannot be reached: Connection refused"
    assert hint.startswith("hint: start it, check the address and firewalls, or give rtt_ms")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["plan"], "accelerate plan needs either --flows or --problem"),
        (["plan", "--flows", "a", "--problem", "b"], "accelerate plan needs either --flows or --problem"),
        (["plan", "--problem", "b", "--write-problem", "c"], "--write-problem needs --flows"),
        (["plan", "extra", "--problem", "b"], "accelerate plan needs either --flows or --problem"),
        (["plan", "--flows", "none.toml"], "none.toml: no such file"),
        (["advise"], "accelerate advise needs either --flows or one address"),
        (["advise", "a:1", "b:1"], "accelerate advise needs either --flows or one address"),
        (["advise", "a:1", "--explain"], "--explain is only for accelerate plan"),
        (["advise", "a:1", "--algorithm", "1p"], "--algorithm and --time-limit need --flows"),
        (["advise", "a.example"], "'a.example' has no port"),
        (["advise", "http://127.0.0.1:x/"], "'http://127.0.0.1:x/' has no port"),
    ],
)
def test_wrong_arguments_are_refused(words: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accelerate", *words]) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"error: {error}"


def test_a_refused_download_is_named(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accelerate", "advise", f"http://{server}/none"]) == 2
    assert "the server answered 404" in capsys.readouterr().err


def test_status_says_that_nothing_has_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path))
    words = ["accelerate", "status"]
    assert main(words) == 0
    assert capsys.readouterr().err == "no acceleration has run; `tradewind accelerate up` starts one\n"
    assert main([*words, "--json"]) == 0
    assert capsys.readouterr() == ("", "")
