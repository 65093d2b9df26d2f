//! The wiring: from a checked configuration to a node that serves.
//!
//! Not here: any decision. Invariant: this is the one place that knows every crate, and parts are
//! closed in the opposite order of their opening.

use crate::clock::{SystemClock, WallClock};
use crate::config::{
    Config, Listen, OriginKeys, OriginKind, OriginRule, Problem, Problems, S3Rule,
};
use crate::moved;
use crate::report::DatasetReport;
use anyhow::Context as _;
use arc_swap::ArcSwap;
use larder_engine::{Engine, Parts};
use larder_gateway::{Gateway, GatewayConfig, KeyRing, Listeners, Rules, Tls, bind_tcp, bind_unix};
use larder_model::{
    Access, BlockStore, Budget, Catalog, Dataset, Freshness, Grants, Origin, OriginName, Policy,
    PolicySetup, PoolSpec,
};
use larder_origin::{
    AccessKey, DirectoryOrigin, OriginLimits, S3Config, S3Origin, SharedCredentials,
};
use larder_store::{HybridStore, RedbCatalog, StoreConfig};
use prometheus::{GaugeVec, Opts, Registry};
use std::collections::BTreeSet;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::timeout;

/// How long closing may take beside the drain of requests: the catalog and the SSD's write buffers.
const MAX_CLOSING: Duration = Duration::from_secs(5);
const MIN_CLOSING: Duration = Duration::from_secs(1);
/// Regions that clients sign for by default, beside those of the origins (DESIGN §2).
const USUAL_REGIONS: [&str; 2] = ["us-east-1", "auto"];

type Origins = Vec<Arc<dyn Origin>>;
/// A dataset with the policy that decides for it.
type Governed = (Arc<Dataset>, Box<dyn Policy>);

/// A node, opened.
pub(crate) struct Node {
    engine: Arc<Engine>,
    store: Arc<HybridStore>,
    gateway: Arc<Gateway>,
    datasets: Vec<Arc<Dataset>>,
    /// The keys of clients.
    pub(crate) keys: Arc<KeyRing>,
    /// The keys for the origins that the configuration gives, in its order.
    pub(crate) credentials: Vec<SharedCredentials>,
    closing: Duration,
}

/// Both listeners, bound.
pub(crate) struct Sockets {
    pub(crate) s3: Listeners,
    pub(crate) admin: TcpListener,
    pub(crate) addresses: Addresses,
}

/// The addresses that the listeners got, also where the configuration said port 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) s3: SocketAddr,
    pub(crate) admin: SocketAddr,
}

/// The certificate of the S3 listener, if it has one.
///
/// # Errors
///
/// [`Problems`] where the files cannot be used.
pub(crate) async fn tls(config: &Config) -> Result<Option<Tls>, Problems> {
    let Some(files) = &config.listen.tls else { return Ok(None) };
    let loaded = Tls::load(&files.cert, &files.key).await;
    let refused = |error: larder_gateway::TlsError| {
        Problems(vec![Problem::new(&["listen", "tls"], error.to_string())])
    };
    loaded.map(Some).map_err(refused)
}

impl Sockets {
    /// Binds what the configuration names. Nothing is accepted yet.
    ///
    /// # Errors
    ///
    /// With the key of the address that cannot be had.
    pub(crate) async fn bind(listen: &Listen, tls: Option<Tls>) -> anyhow::Result<Self> {
        let cannot = |key: &str, address| format!("listen.{key}: cannot listen on {address}");
        let (tcp, s3_address) = bind_tcp(listen.s3).with_context(|| cannot("s3", listen.s3))?;
        let (admin, admin_address) =
            bind_tcp(listen.admin).with_context(|| cannot("admin", listen.admin))?;
        let unix = match &listen.socket {
            Some(path) => {
                let told = || format!("listen.socket: cannot listen on {}", path.display());
                Some(bind_unix(path).await.with_context(told)?)
            }
            None => None,
        };
        let s3 = Listeners { tcp: vec![tcp], unix, tls };
        let addresses = Addresses { s3: s3_address, admin: admin_address };
        Ok(Self { s3, admin, addresses })
    }
}

impl Node {
    /// Opens origins, store, catalog, engine and gateway.
    ///
    /// # Errors
    ///
    /// When the cache folder cannot be used, or parts do not fit.
    pub(crate) async fn open(
        config: &Config,
        clock: SystemClock,
        registry: &Registry,
    ) -> anyhow::Result<Self> {
        let clock: Arc<dyn larder_model::Clock> = Arc::new(clock);
        let pools = config.pools();
        let budget = Budget::new(config.block_budget_bytes());
        let (origins, credentials) = origins(&config.origins, registry)?;
        let path = config.cache.disk.as_ref().map(|disk| disk.path.clone());
        let store = Arc::new(
            HybridStore::open(StoreConfig {
                path: path.clone(),
                reserve: config.cache.disk.as_ref().is_some_and(|disk| disk.reserve),
                pools: pools.clone(),
                budget: budget.clone(),
                registry: registry.clone(),
            })
            .await?,
        );
        // After the store, which holds the lock on the folder.
        let catalog: Option<Arc<dyn Catalog>> = match &path {
            Some(path) => {
                let catalog = RedbCatalog::open(path, registry).await?;
                moved::forget(path, &config.origins, &catalog).await?;
                Some(Arc::new(catalog))
            }
            None => None,
        };
        export_freshness(&config.datasets, registry)?;
        let engine = Engine::open(Parts {
            clock,
            store: store.clone(),
            catalog,
            origins,
            datasets: with_policies(&config.datasets, &pools)?,
            pools,
            budget,
            registry: registry.clone(),
        })
        .await?;
        let keys = Arc::new(KeyRing::new([]));
        // Part of the grace period is for closing, so that the process ends within all of it.
        let closing = MAX_CLOSING.min(config.limits.grace / 5);
        let gateway = Gateway::new(
            GatewayConfig {
                regions: regions(config),
                domains: config.listen.domains.clone(),
                anonymous: config.anonymous,
                forms: config.listen.post_policy,
                connections: config.limits.connections as usize,
                grace: config.limits.grace - closing,
                clock: Arc::new(WallClock),
                registry: registry.clone(),
            },
            Arc::new(engine.clone()),
            Arc::new(ArcSwap::from_pointee(rules(config))),
            keys.clone(),
        )?;
        let datasets = config.datasets.clone();
        Ok(Self { engine, store, gateway, datasets, keys, credentials, closing })
    }

    /// What the status tells of the datasets, whenever it is asked.
    pub(crate) fn reports(&self) -> impl Fn() -> Vec<DatasetReport> + Send + Sync + use<> {
        let (engine, datasets) = (self.engine.clone(), self.datasets.clone());
        move || {
            let statuses = engine.status();
            let found = |dataset: &Arc<Dataset>| {
                let status = statuses.iter().find(|status| status.dataset == dataset.name)?;
                Some(DatasetReport::new(dataset, status))
            };
            datasets.iter().filter_map(found).collect()
        }
    }

    /// Serves until `shutdown` resolves; then lets started answers end, within the grace period.
    pub(crate) async fn serve(&self, listeners: Listeners, shutdown: impl Future<Output = ()>) {
        let drained = self.gateway.serve(listeners, shutdown).await;
        if drained.cut > 0 {
            tracing::warn!(connections = drained.cut, "cut after the grace period");
        }
    }

    /// Writes what is to outlive the process. Nothing may be served any more.
    pub(crate) async fn close(self) {
        let both = async {
            self.engine.close().await;
            self.store.close().await;
        };
        if timeout(self.closing.max(MIN_CLOSING), both).await.is_err() {
            tracing::warn!("closing takes too long; the next start finds less in the cache");
        }
    }
}

fn origins(
    rules: &[OriginRule],
    registry: &Registry,
) -> anyhow::Result<(Origins, Vec<SharedCredentials>)> {
    let mut origins = Origins::new();
    let mut credentials = Vec::new();
    for rule in rules {
        match &rule.kind {
            OriginKind::Directory(path) => {
                let origin = DirectoryOrigin::open(rule.name.clone(), path, registry)?;
                origins.push(Arc::new(origin));
            }
            OriginKind::S3(s3) => {
                let config = s3_config(&rule.name, s3);
                if matches!(s3.keys, OriginKeys::Given(_)) {
                    credentials.push(config.credentials.clone());
                }
                origins.push(Arc::new(S3Origin::new(config, registry)?));
            }
        }
    }
    Ok((origins, credentials))
}

/// How to reach an S3 origin, with its keys as the configuration found them.
pub(crate) fn s3_config(name: &OriginName, s3: &S3Rule) -> S3Config {
    let credentials = match &s3.keys {
        OriginKeys::Default => SharedCredentials::default_chain(&s3.region),
        OriginKeys::Given(keys) => {
            let token = keys.session_token.as_ref();
            SharedCredentials::new(AccessKey {
                id: keys.id.as_str().to_owned(),
                secret: keys.secret.text.expose().to_owned(),
                session_token: token.map(|token| token.text.expose().to_owned()),
            })
        }
    };
    S3Config {
        name: name.clone(),
        dialect: s3.dialect,
        endpoint: s3.endpoint.clone(),
        region: s3.region.clone(),
        addressing: Some(s3.addressing),
        credentials,
        ca: s3.ca.as_ref().map(|ca| ca.pem.clone()),
        limits: OriginLimits {
            requests_per_second: s3.max_requests_per_second,
            in_flight: s3.max_requests_in_flight as usize,
            connect_timeout: s3.connect_timeout,
            answer_timeout: s3.answer_timeout,
            idle_timeout: s3.idle_timeout,
            attempts: s3.attempts,
            ..OriginLimits::default()
        },
    }
}

/// Each dataset with a policy of its own, told how much it may keep.
fn with_policies(datasets: &[Arc<Dataset>], pools: &[PoolSpec]) -> anyhow::Result<Vec<Governed>> {
    let mut paired = Vec::new();
    for dataset in datasets {
        let pool = pools.iter().find(|pool| pool.name == dataset.pool());
        let pool = pool.with_context(|| format!("dataset {} has no pool", dataset.name))?;
        let capacity_bytes = if pool.disk_bytes > 0 { pool.disk_bytes } else { pool.memory_bytes };
        let setup = PolicySetup { capacity_bytes, seed: rand::random() };
        let policy = larder_policy::builtin(&dataset.policy, &setup)
            .with_context(|| format!("dataset {}: no policy {}", dataset.name, dataset.policy))?;
        paired.push((dataset.clone(), policy));
    }
    Ok(paired)
}

fn rules(config: &Config) -> Rules {
    let mut grants = Grants::new();
    for key in &config.keys {
        for (dataset, access) in &key.allow {
            grants.allow(&key.id, dataset.clone(), *access);
        }
    }
    if config.anonymous {
        // The access of each dataset bounds this.
        grants.allow_anonymous(Access::ReadWrite);
    }
    Rules { namespace: config.namespace.clone(), grants }
}

/// Every signing region that is accepted: the usual ones first, since the first is named to clients
/// that sign for another.
fn regions(config: &Config) -> Vec<String> {
    let mut regions: Vec<String> = USUAL_REGIONS.map(str::to_owned).to_vec();
    let of_origins = config.origins.iter().filter_map(|rule| match &rule.kind {
        OriginKind::S3(rule) => Some(&rule.region),
        OriginKind::Directory(_) => None,
    });
    let more: BTreeSet<&String> = of_origins.chain(&config.listen.regions).collect();
    regions.extend(
        more.into_iter().filter(|region| !USUAL_REGIONS.contains(&region.as_str())).cloned(),
    );
    regions
}

/// `larder_freshness_bound_seconds`: how old a served version may be; `+Inf` for immutable.
fn export_freshness(datasets: &[Arc<Dataset>], registry: &Registry) -> prometheus::Result<()> {
    let help = "How old a served version may be; +Inf where objects are declared immutable.";
    let gauge = GaugeVec::new(Opts::new("larder_freshness_bound_seconds", help), &["dataset"])?;
    for dataset in datasets {
        let bound = match dataset.freshness {
            Freshness::Immutable => f64::INFINITY,
            Freshness::Within(bound) => bound.as_secs_f64(),
            Freshness::Strict => 0.0,
        };
        gauge.with_label_values(&[dataset.name.as_str()]).set(bound);
    }
    registry.register(Box::new(gauge))
}
