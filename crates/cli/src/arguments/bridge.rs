//! The arguments of `bridge`.

use clap::Args;

use super::{GatewayFlags, Serve, client::header};
use unhang::tools::ModeOverrides;

/// The server that is bridged.
#[derive(Clone, Debug, Args)]
pub(crate) struct BridgedServer {
    /// The URL of the server. Log in to it before with `unhang login URL`, if it wants that
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Send this header; may be given several times. Other users of the machine can see it while unhang runs
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    pub(crate) header: Vec<(String, String)>,
}

/// `unhang bridge`.
#[derive(Debug, Args)]
#[command(after_help = "Times and sizes need a unit (500ms, 30s, 5m; 64KiB, 16MiB). Each limit is also an\n\
    environment variable: --call-timeout is UNHANG_CALL_TIMEOUT.\n\n\
    Examples:\n  \
    unhang bridge https://mcp.example.com/mcp\n  \
    unhang bridge --header \"Authorization: Bearer $TOKEN\" https://mcp.example.com/mcp\n\n\
    Exit codes: 0 the client ended the session; 2 wrong usage; 130 and 143 ended by\n\
    SIGINT and SIGTERM.")]
pub(crate) struct BridgeArguments {
    #[command(flatten)]
    pub(crate) server: BridgedServer,
    #[command(flatten)]
    pub(crate) gateway: GatewayFlags,
}

impl From<BridgeArguments> for Serve {
    fn from(bridge: BridgeArguments) -> Self {
        let BridgeArguments { server, gateway } = bridge;
        Self {
            config: None,
            stdio: true,
            http: None,
            sse: false,
            own: true,
            token_file: None,
            print_config_schema: false,
            tool_mode: ModeOverrides::default(),
            command: Vec::new(),
            bridged: Some(server),
            gateway,
        }
    }
}
