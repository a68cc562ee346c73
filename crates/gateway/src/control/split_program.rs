//! Checks a split program, and makes the configuration of the proxy from it.

use crate::limits::{
    CONGESTION_CONTROL_CHARS_MAX, SPLIT_CONNECTIONS_MAX, SPLIT_PATTERNS_MAX, SPLIT_PROXIES_MAX, SPLIT_ROUTES_MAX,
    SPLIT_TIMEOUT_MS_MAX,
};
use crate::names::check_node_name;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::str::FromStr;
use tradewind_contract::{
    CONTRACT_VERSION, DATA_PORT, Refusal, SplitLimits, SplitListener, SplitProgram, SplitRoute, SplitWay,
};
use tradewind_split::Config;
use tradewind_split::allow::AllowList;
use tradewind_split::config::{Limits, Listener, Route, TokenSource, Way};
use tradewind_split::limits::POOL_MAX;
use tradewind_split::token::Tokens;

fn refuse<T>(error: impl Into<String>, hint: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { error: error.into(), hint: Some(hint.into()) })
}

/// True if a listener takes over the data port of the gateway.
pub(super) fn takes_data_port(program: &SplitProgram) -> bool {
    program.listeners.iter().any(|listener| listener.listen == DATA_PORT)
}

/// The configuration of a proxy without files. `data` is the address of the gateway's data port, if it may be used.
///
/// # Errors
/// The first fault. Contradictions between the fields are left to [`Config::check`].
pub(super) fn config_of(program: &SplitProgram, data: Option<SocketAddr>) -> Result<Config, Refusal> {
    if program.contract != CONTRACT_VERSION {
        return refuse(
            format!(
                "this gateway uses contract {CONTRACT_VERSION}, but the program uses contract {}",
                program.contract
            ),
            "use the same version of the client and the gateways",
        );
    }
    check_count("proxies", program.proxies.len(), SPLIT_PROXIES_MAX)?;
    if program.listeners.iter().filter(|listener| listener.listen == DATA_PORT).count() > 1 {
        return refuse("two listeners take over the data port", "one listener can have listen \"data\"");
    }
    for name in program.proxies.keys() {
        if let Err(error) = check_node_name(name) {
            return refuse(error, "a proxy's name is also the name in its certificate");
        }
    }
    check_congestion_control(program.congestion_control.as_deref())?;
    let proxies = program.proxies.iter().map(|(name, at)| Ok((name.clone(), parsed("proxies", at)?)));
    Ok(Config {
        listeners: program.listeners.iter().map(|each| listener_of(each, data)).collect::<Result<_, Refusal>>()?,
        proxies: proxies.collect::<Result<_, Refusal>>()?,
        routes: routes_of(&program.routes)?,
        allow: AllowList::new(all_parsed("allow", &program.allow)?),
        identity: None,
        // A proxy of a fleet knows no others, and learns names from its clients.
        upstreams: BTreeMap::new(),
        names: BTreeMap::new(),
        default_route: Vec::new(),
        limits: limits_of(&program.limits)?,
        proxy_protocol: all_parsed("proxy_protocol", &program.proxy_protocol)?,
        congestion_control: program.congestion_control.clone(),
        probes: program.probes.clone(),
    })
}

fn listener_of(listener: &SplitListener, data: Option<SocketAddr>) -> Result<Listener, Refusal> {
    let hashes = |tokens: &BTreeMap<String, String>| {
        Tokens::of_hashes(tokens.iter().map(|(name, hash)| (name.as_str(), hash.as_str())))
    };
    let tokens = listener.tokens.as_ref().map(hashes).transpose().or_else(|error| {
        refuse(format!("listener {}: {error}", listener.listen), "give the SHA-256 of each token in hexadecimal")
    })?;
    Ok(Listener {
        listen: address_of(listener, data)?,
        way: match listener.way {
            SplitWay::Forward => Way::Forward,
            SplitWay::Socks5 => Way::Socks5,
            SplitWay::Connect => Way::Connect,
            SplitWay::Sni => Way::Sni,
            SplitWay::Transparent => Way::Transparent,
            SplitWay::Hop => Way::Hop,
        },
        destination: listener.destination.as_deref().map(|text| parsed("destination", text)).transpose()?,
        port: listener.port,
        tokens: tokens.map(TokenSource::Known),
        clients: all_parsed("clients", &listener.clients)?,
        proxy_protocol: listener.proxy_protocol,
        name: listener.name.clone(),
        routes: routes_of(&listener.routes)?,
        callers: listener.callers.as_ref().map(callers_of).transpose()?,
    })
}

fn callers_of(callers: &BTreeMap<String, Vec<String>>) -> Result<BTreeMap<String, AllowList>, Refusal> {
    check_count("callers", callers.len(), SPLIT_PROXIES_MAX)?;
    let caller =
        |(name, allow): (&String, &Vec<String>)| Ok((name.clone(), AllowList::new(all_parsed("callers", allow)?)));
    callers.iter().map(caller).collect()
}

fn routes_of(routes: &[SplitRoute]) -> Result<Vec<Route>, Refusal> {
    check_count("routes", routes.len(), SPLIT_ROUTES_MAX)?;
    let route = |route: &SplitRoute| {
        Ok(Route { destination: parsed("routes", &route.destination)?, through: route.through.clone() })
    };
    routes.iter().map(route).collect()
}

fn address_of(listener: &SplitListener, data: Option<SocketAddr>) -> Result<SocketAddr, Refusal> {
    if listener.listen != DATA_PORT {
        return parsed("listen", &listener.listen);
    }
    if listener.way != SplitWay::Hop {
        return refuse(
            "only the way in `hop` can take over the data port",
            "firewalls admit the gateways of the fleet to it, and nobody else should connect",
        );
    }
    data.map_or_else(
        || refuse("this gateway has no data port", "start it with --data, or give the listener an address"),
        Ok,
    )
}

fn limits_of(limits: &SplitLimits) -> Result<Limits, Refusal> {
    let default = Limits::default();
    let count = |name: &str, value: Option<u32>, default: usize| match value {
        None => Ok(default),
        Some(value) => in_range(name, value, SPLIT_CONNECTIONS_MAX).map(|value| value as usize),
    };
    let time = |name: &str, value: Option<u32>, default: u64| match value {
        None => Ok(default),
        Some(value) => in_range(name, value, SPLIT_TIMEOUT_MS_MAX).map(u64::from),
    };
    let pool = match limits.pool {
        Some(count) if count as usize > POOL_MAX => {
            return refuse(format!("limits.pool is {count}"), format!("it is 0 to {POOL_MAX}"));
        }
        count => count.map_or(default.pool, |count| count as usize),
    };
    let accepts = limits.accepts_per_second_max.unwrap_or(default.accepts_per_second_max);
    let rate =
        |name: &str, value: Option<u32>| value.map(|value| in_range(name, value, SPLIT_CONNECTIONS_MAX)).transpose();
    let of_destination = limits.connections_per_destination_max;
    Ok(Limits {
        connections_max: count("connections_max", limits.connections_max, default.connections_max)?,
        connections_per_client_max: count(
            "connections_per_client_max",
            limits.connections_per_client_max,
            default.connections_per_client_max,
        )?,
        connections_per_proxy_max: count(
            "connections_per_proxy_max",
            limits.connections_per_proxy_max,
            default.connections_per_proxy_max,
        )?,
        connections_per_destination_max: count(
            "connections_per_destination_max",
            of_destination,
            default.connections_per_destination_max,
        )?,
        accepts_per_second_max: in_range("accepts_per_second_max", accepts, SPLIT_CONNECTIONS_MAX)?,
        accepts_per_second_per_client_max: rate(
            "accepts_per_second_per_client_max",
            limits.accepts_per_second_per_client_max,
        )?,
        accepts_per_second_per_destination_max: rate(
            "accepts_per_second_per_destination_max",
            limits.accepts_per_second_per_destination_max,
        )?,
        accepts_per_second_of_strangers_max: rate(
            "accepts_per_second_of_strangers_max",
            limits.accepts_per_second_of_strangers_max,
        )?,
        bytes_per_second_per_client_max: limits.bytes_per_second_per_client_max,
        bytes_per_second_per_destination_max: limits.bytes_per_second_per_destination_max,
        request_timeout_ms: time("request_timeout_ms", limits.request_timeout_ms, default.request_timeout_ms)?,
        dial_timeout_ms: time("dial_timeout_ms", limits.dial_timeout_ms, default.dial_timeout_ms)?,
        idle_timeout_ms: time("idle_timeout_ms", limits.idle_timeout_ms, default.idle_timeout_ms)?,
        drain_timeout_ms: time("drain_timeout_ms", limits.drain_timeout_ms, default.drain_timeout_ms)?,
        pool,
        pool_age_ms: time("pool_age_ms", limits.pool_age_ms, default.pool_age_ms)?,
        pool_idle_ms: time("pool_idle_ms", limits.pool_idle_ms, default.pool_idle_ms)?,
    })
}

fn in_range(name: &str, value: u32, most: u32) -> Result<u32, Refusal> {
    if (1..=most).contains(&value) {
        return Ok(value);
    }
    refuse(format!("limits.{name} is {value}"), format!("it is 1 to {most}"))
}

fn check_count(what: &str, count: usize, most: usize) -> Result<(), Refusal> {
    if count > most {
        return refuse(format!("{count} {what}"), format!("a split program has at most {most} {what}"));
    }
    Ok(())
}

fn check_congestion_control(name: Option<&str>) -> Result<(), Refusal> {
    let is_name = |name: &str| {
        (1..=CONGESTION_CONTROL_CHARS_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    };
    match name {
        Some(name) if !is_name(name) => {
            refuse(format!("{name:?} is not a congestion control"), "for example bbr or cubic")
        }
        _ => Ok(()),
    }
}

fn parsed<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, Refusal> {
    text.parse().or_else(|error| refuse(format!("{field}: {text:?}: {error}"), PATTERN_HINT))
}

fn all_parsed<T: FromStr<Err: Display>>(field: &str, texts: &[String]) -> Result<Vec<T>, Refusal> {
    check_count(field, texts.len(), SPLIT_PATTERNS_MAX)?;
    texts.iter().map(|text| parsed(field, text)).collect()
}

const PATTERN_HINT: &str = "docs/reference/control-api.md has the form of addresses and patterns";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn program(changes: Value) -> SplitProgram {
        let mut document = json!({
            "contract": CONTRACT_VERSION,
            "listeners": [{"listen": "127.0.0.1:0", "way": "socks5", "tokens": {"ann": "0".repeat(64)}}],
            "proxies": {"exit": "192.0.2.1:7000"},
            "routes": [{"destination": "*.example:443", "through": ["exit"]}],
            "allow": ["*.example:443", "10.0.0.0/8:*"],
        });
        document.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn a_program_becomes_a_configuration_that_the_proxy_accepts() {
        let config = config_of(&program(json!({"limits": {"idle_timeout_ms": 7}})), None).unwrap();
        config.check(true).unwrap();
        assert!(config.check(false).is_err());
        let default = Limits::default();
        assert_eq!((config.limits.idle_timeout_ms, config.limits.connections_max), (7, default.connections_max));
    }

    #[test]
    fn callers_are_limited_to_their_destinations() {
        let hop = |callers: Value| {
            let listener = json!([{"listen": "127.0.0.1:0", "way": "hop", "callers": callers}]);
            config_of(&program(json!({"listeners": listener})), None)
        };
        let config = hop(json!({"entry": ["a.example:443"]})).unwrap();
        config.check(true).unwrap();
        let callers = config.listeners[0].callers.as_ref().unwrap();
        assert!(callers["entry"].allows_request(&"a.example:443".parse().unwrap()));
        assert!(!callers["entry"].allows_request(&"b.example:443".parse().unwrap()));
        assert!(hop(json!({"entry": ["*:1"]})).unwrap_err().error.contains("\"*:1\""));
        assert!(
            config_of(
                &program(json!({"listeners": [{"listen": "127.0.0.1:0", "way": "socks5", "callers": {}}]})),
                None
            )
            .unwrap()
            .check(true)
            .is_err()
        );
    }

    #[test]
    fn the_first_fault_is_named() {
        let faults = [
            (json!({"contract": 1}), "contract 1"),
            (json!({"proxies": {"A B": "192.0.2.1:1"}}), "A B"),
            (json!({"proxies": {"exit": "192.0.2.1"}}), "has no port"),
            (json!({"allow": ["*:1"]}), "\"*:1\""),
            (json!({"allow": vec!["a:1"; SPLIT_PATTERNS_MAX + 1]}), "4097 allow"),
            (json!({"limits": {"connections_max": 0}}), "limits.connections_max is 0"),
            (json!({"limits": {"drain_timeout_ms": 90_000_000}}), "limits.drain_timeout_ms is 90000000"),
            (json!({"limits": {"pool": 65}}), "limits.pool is 65"),
            (
                json!({"limits": {"accepts_per_second_per_client_max": 0}}),
                "limits.accepts_per_second_per_client_max is 0",
            ),
            (json!({"congestion_control": "a/b"}), "a/b"),
            (json!({"listeners": [{"listen": "here", "way": "hop"}]}), "listen: \"here\""),
            (json!({"listeners": [{"listen": "data", "way": "hop"}]}), "no data port"),
            (json!({"listeners": [{"listen": "data", "way": "sni"}]}), "only the way in `hop`"),
            (json!({"listeners": vec![json!({"listen": "data", "way": "hop"}); 2]}), "two listeners"),
        ];
        for (changes, expected) in faults {
            let error = config_of(&program(changes), None).unwrap_err().error;
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn connections_are_ready_for_a_second_at_least() {
        let check = |age_ms| config_of(&program(json!({"limits": {"pool_age_ms": age_ms}})), None).unwrap().check(true);
        assert!(check(1_000).is_ok());
        assert!(check(999).unwrap_err().to_string().contains("`pool_age_ms` is 999, and at least 1s"));
        assert!(check(600_000).is_err());
    }

    #[test]
    fn a_token_that_is_no_hash_is_refused_and_not_repeated() {
        let listener = json!([{"listen": "127.0.0.1:0", "way": "connect", "tokens": {"ann": "my secret"}}]);
        let refusal = config_of(&program(json!({"listeners": listener})), None).unwrap_err();
        assert!(refusal.error.contains("ann") && !refusal.error.contains("my secret"), "{}", refusal.error);
    }
}
