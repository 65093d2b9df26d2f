//! Larder's binary: parse, read the configuration, start telemetry, build, serve, drain.
//!
//! Architecture invariant: every port's adapter is chosen here and in `node`, and nowhere else.

mod admin;
mod announce;
mod cli;
mod clock;
mod config;
mod descriptors;
mod embedded;
mod moved;
mod node;
mod probe;
mod report;
mod rotate;
mod secrets;
mod signals;
mod source;
mod status;
mod telemetry;

use admin::{Admin, Phase, Token};
use anyhow::Context as _;
use clap::Parser as _;
use cli::{Cli, Command, ConfigAction, OriginAction};
use clock::SystemClock;
use config::{Config, Problems};
use node::{Node, Sockets};
use rotate::Watched;
use secrets::Holders;
use signals::Signals;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// Half of a hot request's small allocations are the S3 layer's; glibc's allocator took a tenth of
/// the processor for them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit code of a failure, and of a wrong usage or configuration.
const FAILED: u8 = 1;
const REFUSED: u8 = 2;

/// How long requests at hand on the admin listener may take at the end.
const ADMIN_GRACE: std::time::Duration = std::time::Duration::from_secs(2);

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast::<Problems>() {
            Ok(problems) => {
                eprintln!("{problems}");
                ExitCode::from(REFUSED)
            }
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::from(FAILED)
            }
        },
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Serve(command) => {
            let config = source::serve_config(&command)?;
            telemetry::start(&command.log)?;
            descriptors::raise(&config);
            runtime()?.block_on(serve(Arc::new(config)))
        }
        Command::Status(command) => runtime()?.block_on(status::run(&command)),
        Command::Origin(command) => match command.action {
            OriginAction::Probe(command) => runtime()?.block_on(probe::run(&command)),
        },
        Command::Config(command) => match command.action {
            ConfigAction::Check(layers) => {
                let config = source::file_config(&layers)?;
                runtime()?.block_on(node::tls(&config))?;
                println!("the configuration is good");
                Ok(())
            }
            ConfigAction::Show(layers) => {
                print!("{}", source::file_config(&layers)?.show()?);
                Ok(())
            }
        },
    }
}

fn runtime() -> anyhow::Result<Runtime> {
    Runtime::new().context("starting the runtime")
}

async fn serve(config: Arc<Config>) -> anyhow::Result<()> {
    let mut signals = Signals::hold().context("holding the signals")?;
    let tls = node::tls(&config).await?;
    let Sockets { s3, admin: admin_socket, addresses } = Sockets::bind(&config.listen, tls).await?;
    let clock = SystemClock::start();
    let registry = prometheus::Registry::new();
    admin::register(&registry, &clock)?;
    let token = Token::new(config.admin_token.as_ref().map(|token| token.text.clone()));
    let admin = Admin::new(token.clone(), registry.clone(), clock.clone());
    let (stop_admin, admin_stops) = oneshot::channel::<()>();
    let admin_task = tokio::spawn(admin.clone().serve(admin_socket, async {
        let _either_way_it_is_over = admin_stops.await;
    }));

    let node = tokio::select! {
        node = Node::open(&config, clock, &registry) => node?,
        () = signals.next() => return Ok(()),
    };
    let watched = Watched::new(secrets::all(&config));
    let holders = Holders::new(&node, token);
    holders.give(&config, &watched);
    let given = config.clone();
    let rotation = tokio::spawn(watched.run(move |watched| holders.give(&given, watched)));
    admin.show(node.reports());
    admin.set_phase(Phase::Ready);
    announce::announce(&config, addresses)?;

    node.serve(s3, async {
        signals.next().await;
        tracing::info!("draining: started answers end, nothing new is taken");
        admin.set_phase(Phase::Draining);
        tokio::spawn(signals.end_at_next());
    })
    .await;
    rotation.abort();
    node.close().await;
    drop(stop_admin);
    let admin_ends = admin_task.abort_handle();
    let Ok(ended) = tokio::time::timeout(ADMIN_GRACE, admin_task).await else {
        // Somebody is in the middle of a request to it: no reason to stay.
        admin_ends.abort();
        return Ok(());
    };
    ended.context("the admin listener")?.context("the admin listener")
}
