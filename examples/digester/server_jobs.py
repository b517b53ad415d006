"""The digester as an MCP server whose tools are jobs: each call answers at once with the id of a job."""

import os

import unhang
from mcp.server.mcpserver import MCPServer

server = MCPServer("digester")
jobs = unhang.jobs(server)


@jobs.job(state="digester_design")
def size_digester(flow_m3_d: float, cod_kg_m3: float) -> dict:
    """Sizes an anaerobic digester for a flow and its load."""
    import digester

    digester.import_heavy_modules(float(os.environ.get("DIGESTER_IMPORT_SECONDS", "6")))
    return digester.size({"flow_m3_d": flow_m3_d, "cod_kg_m3": cod_kg_m3})["design"]


@jobs.job(state="simulation_results", timeout="10m")
def simulate_digester(flow_m3_d: float, cod_kg_m3: float, volume_m3: float, days: float = 60) -> dict:
    """Simulates a digester over some days."""
    import digester

    digester.import_heavy_modules(float(os.environ.get("DIGESTER_IMPORT_SECONDS", "6")))
    design = {"flow_m3_d": flow_m3_d, "cod_kg_m3": cod_kg_m3, "volume_m3": volume_m3}
    return digester.simulate(design, days)["digester"]


if __name__ == "__main__":
    server.run()
