"""Limits of the transfer service. docs/reference/limits.md says what happens at each."""

from __future__ import annotations

#: Maximum bytes of a request body; a larger one is answered 413.
BODY_BYTES_MAX = 1 << 20
#: Maximum bytes of a body that are read without a valid token. Bytes of all larger bodies that a server has at a time,
#: and of those of one tenant; a further one is answered 503.
BODY_BYTES_UNKNOWN_MAX = 16 << 10
BODIES_BYTES_MAX, BODIES_BYTES_PER_TENANT_MAX = 64 << 20, 16 << 20
#: Connections of one server, at most half of the files that it may open; and of one address without `--behind-proxy`. A
#: further one is closed at once.
CONNECTIONS_MAX = 2_048
CONNECTIONS_PER_ADDRESS_MAX = 512
#: Time for the whole head and the whole body of a request, and for a client that does not read its answer [s]; then the
#: connection is closed.
HEAD_S_MAX = 10.0
BODY_S_MAX = 60.0
UNREAD_S_MAX = 60.0
#: Sustained requests per second of one token, and the burst above it; beyond them a request is answered 429.
REQUESTS_PER_S = 100.0
REQUESTS_BURST = 300
#: The same for all tokens of one tenant together.
TENANT_REQUESTS_PER_S = 400.0
TENANT_REQUESTS_BURST = 1_200
#: Refused tokens per second of one address, and the burst above it; beyond them a request is answered 429.
REFUSED_PER_S = 1.0
REFUSED_BURST = 30
#: Tokens and addresses whose rate is tracked; beyond it the least recently used is forgotten.
RATES_MAX = 10_000
#: Open event streams of the server, and of one tenant; a further one is answered 429.
STREAMS_MAX = 256
STREAMS_PER_TENANT_MAX = 64
#: Interval at which the server looks for new events of all watched jobs, and threads in which streams read them.
STREAM_LOOK_S = 0.25
STREAM_READS_AT_ONCE = 4
#: Interval at which a stream's token is checked again [s].
STREAM_CHECK_S = 5.0
#: An event stream without events gets a comment after this time, so that proxies keep it open.
STREAM_KEEP_ALIVE_S = 15.0
#: Events that a stream reads from the database at once.
STREAM_EVENTS_AT_ONCE = 500
#: Jobs of one tenant that have not ended; a further one is answered 429.
OPEN_JOBS_PER_TENANT_MAX = 10_000
#: Maximum answers, events and unfinished uploads in one report of a guest, and how long one waits for a request [s].
GUEST_ANSWERS_MAX, GUEST_EVENTS_MAX, GUEST_UPLOADS_MAX, GUEST_WAIT_S = 16, 256, 1_000, 0.5
#: Requests of guests that one server passes on to others at a time, and the time for an answer [s]; further ones wait.
PEER_REQUESTS_AT_ONCE = 32
PEER_S_MAX = 10.0
#: Open connections to the listener for other servers; for a further one, the oldest ends.
PEER_CONNECTIONS_MAX = 256
#: Waiting jobs that the scheduler reads, oldest first. If more wait, it also reads so many first ones of each tenant,
#: at this interval: to find them takes a second.
PASS_JOBS_MAX = 20_000
FIRST_JOBS_OF_TENANT, FIRST_JOBS_EVERY_S = 100, 10.0
#: Jobs whose reason and end are computed in one round, the minimum pause between rounds, and the maximum share of the
#: time that rounds take.
ANSWERS_AT_ONCE = 2_000
ANSWER_EVERY_S = 0.5
ANSWER_SHARE = 0.2
#: Jobs of a round that are computed while requests wait, and the pause in which these continue.
ANSWERS_UNDER_LOCK = 20
ANSWER_PAUSE_S = 0.001
#: Entries of one page, and its default.
PAGE_MAX = 200
PAGE_DEFAULT = 50
#: Fleets of one page, and its default: each one's provider is asked.
FLEETS_PAGE_MAX = 50
FLEETS_PAGE_DEFAULT = 20
#: Maximum bytes of one line in a list of objects.
OBJECT_LINE_BYTES_MAX = 64 << 10
#: Default of `--jobs`, and its maximum.
RUNNING_JOBS_DEFAULT = 8
RUNNING_JOBS_MAX = 256
#: Pause before a cancellation that failed is tried again.
RETRY_PAUSE_S = 5.0
#: Pause of a part of the server after a fault of the program, doubled after each further one in a row, and the longest;
#: and the interval at which the same fault is logged again.
FAULT_PAUSE_S = 1.0
FAULT_PAUSE_S_MAX = 30.0
FAULT_LOG_EVERY_S = 300.0
#: Interval between scheduling passes if nothing happens.
PASS_EVERY_S = 0.5
#: Time for which a server leaves a job that was started to the server with the least load.
LEFT_TO_OTHERS_S = 2
#: Interval at which the scheduler reads the progress of running jobs.
PROGRESS_EVERY_S = 2.0
#: Interval at which a server reads what is closed, for its running jobs.
RULES_EVERY_S = 2.0
#: Interval at which a store that is down is asked, and the time for its answer.
PROBE_EVERY_S = 2.0
PROBE_S_MAX = 10.0
#: Interval at which a server looks for the machines of killed commands, to end them.
ORPHANS_EVERY_S = 300.0
#: Tenants whose stores are asked at a time, each for one store.
TENANT_PROBES_AT_ONCE = 4
#: Limits of resources, weights, and bans and maintenance windows of a service; further ones are refused.
RESOURCE_LIMITS_MAX = 10_000
WEIGHTS_MAX = 10_000
BANS_MAX = 1_000
#: Schedules of one tenant; a further one is answered 409.
SCHEDULES_PER_TENANT_MAX = 100
#: Open events of one schedule; a further one is answered 429. Handled ones are kept this long, for their keys [s].
SCHEDULE_EVENTS_MAX = 1_000
SCHEDULE_EVENT_KEPT_S = 7 * 86_400.0
#: Largest priority of a job, and smallest with a minus.
PRIORITY_MAX = 100
#: Spans that wait for the collector of `--traces`; beyond it the oldest are dropped.
TRACE_SPANS_WAITING_MAX = 4_096
#: Spans that are sent at once, the interval between sends, and the time for one, with its retries [s].
TRACE_SPANS_AT_ONCE = 512
TRACE_SEND_EVERY_S = 1.0
TRACE_EXPORT_S_MAX = 5.0
#: Minimum interval between two warnings that the collector does not accept spans.
TRACE_WARNING_EVERY_S = 600.0
#: Spans of the hops of one run, busiest first.
TRACE_HOPS_MAX = 256
#: Default, minimum and maximum of `--lease`: after this time without a sign of life, another server adopts the jobs.
LEASE_S_DEFAULT = 15
LEASE_S_MIN = 2
LEASE_S_MAX = 600
#: Default and maximum lifetime of a token.
TOKEN_S_DEFAULT = 30 * 86_400
TOKEN_S_MAX = 365 * 86_400
#: Tokens of one tenant that are valid, and tenants of a service; a further one is answered 409.
TOKENS_PER_TENANT_MAX = 1_000
TENANTS_MAX = 10_000
#: Maximum overlap in which a rotated token is still valid.
ROTATION_S_MAX = 86_400
#: Refusals per second of one sender that are recorded in the audit log, and the burst above it.
AUDITED_REFUSALS_PER_S = 0.1
AUDITED_REFUSALS_BURST = 20
#: Maximum length of an OIDC token, and difference between the clocks of the issuer and the server.
JWT_BYTES_MAX = 8_192
CLOCK_SKEW_S = 60
#: Maximum bytes of an issuer's document, number of its keys, and time for one answer.
ISSUER_BYTES_MAX = 1 << 20
ISSUER_KEYS_MAX = 100
ISSUER_TIMEOUT_S = 5.0
#: Requests that wait for the answer of an issuer; a further one uses the keys that are known, or is answered 503.
ISSUER_WAITING_MAX = 4
#: An issuer's keys are read again after this time, or for an unknown key id, but not within the pause.
ISSUER_KEYS_S = 600.0
ISSUER_PAUSE_S = 10.0
#: Keys are used this long if the issuer does not answer; then its tokens are answered 503.
ISSUER_STALE_S = 3_600.0
#: Members of one tenant; a further one is answered 403.
MEMBERS_PER_TENANT_MAX = 10_000
#: Interval at which the last request of a member is recorded.
MEMBER_SEEN_S = 300.0
#: Webhooks of one tenant; a further one is answered 409.
WEBHOOKS_PER_TENANT_MAX = 20
#: Connections of one tenant; a further one is answered 409. A longer secret is answered 422.
CONNECTIONS_PER_TENANT_MAX = 100
#: Time for which a job that has written to a connection proves that others of the tenant may [s].
PROOF_S = 30 * 86_400
SECRET_BYTES_MAX = 16_384
#: Pending deliveries of one tenant; a further event is dropped and counted.
DELIVERIES_PENDING_MAX = 1_000
#: Deliveries that are sent at once, by all tenants and by one.
DELIVERIES_AT_ONCE = 8
DELIVERIES_AT_ONCE_PER_TENANT = 2
#: Attempts of a delivery, the first pause between them (doubled each time), and the longest pause.
DELIVERY_ATTEMPTS_MAX = 8
DELIVERY_PAUSE_S = 5.0
DELIVERY_PAUSE_S_MAX = 3_600.0
#: Time for the whole answer of a receiver, and time after which a delivery without a result is tried again.
DELIVERY_TIMEOUT_S = 10.0
DELIVERY_LEASE_S = 120.0
#: Interval at which pending deliveries are looked for.
DELIVERY_LOOK_S = 0.5
#: Time after which deliveries that have ended are removed.
DELIVERY_KEPT_S = 7 * 86_400.0
#: Time for open requests to end when the server stops.
STOP_S = 5
#: Time to count the source for a quote [s]; then the quote is answered 409.
QUOTE_COUNT_S_MAX = 20.0
#: Quotes that a server makes at a time, for all tenants and for one, and open quotes of one tenant; a further one is
#: answered 429.
QUOTES_AT_ONCE_MAX, QUOTES_AT_ONCE_PER_TENANT = 4, 2
QUOTES_PER_TENANT_MAX = 1_000
#: Highest price of a quote, and highest price of a tariff for a GB or an hour [micro-dollars]. The database keeps
#: amounts in 63 bits.
QUOTE_USD_MICROS_MAX = 10**15
TARIFF_USD_MICROS_MAX = 10**9
#: Default and maximum time for which a quote is kept.
QUOTE_S_DEFAULT = 3_600
QUOTE_S_MAX = 86_400
#: Transfers that a server plans at a time, and how long a further one waits [s]; then it is answered 429.
PLANS_AT_ONCE_MAX = 2
PLANS_WAIT_S = 20.0
#: Plans of one tenant at a time, and requests that wait for one, of all tenants and of one; a further one is answered
#: 429. All requests together have 40 threads.
PLANS_AT_ONCE_PER_TENANT = 1
PLANS_WAITING_MAX, PLANS_WAITING_PER_TENANT = 8, 2
#: Time for one plan [s]; then it is answered 503.
PLAN_S_MAX = 300.0
#: Memory of a process that plans; it takes some 120 MiB.
PLAN_BYTES_MAX = 1 << 30
#: Largest volume of a plan [GB]: an exabyte.
VOLUME_GB_MAX = 1e9
#: Hours ahead for which tenants may bid; a later one is answered 409.
BID_HOURS_MAX = 168
#: Open bids of one tenant, and of one auction; a further one is answered 429.
BIDS_PER_TENANT_MAX = 1_000
BIDS_PER_AUCTION_MAX = 10_000
#: An auction that is cleared later than this after the start of its hour is void [s].
CLEARING_LATE_S = 300.0
#: Interval at which bandwidth that is withheld from winners of auctions is counted. A longer gap, in which no server
#: has scheduled, counts as withheld [s].
WITHHELD_EVERY_S = 5.0
WITHHELD_GAP_S = 30.0
#: Interval at which the utilisation of links and of the servers is recorded, and the most of the time since the last
#: record for which it counts. In a longer time no server has scheduled, so the rest counts as idle [s].
UTILISATION_EVERY_S = 60.0
UTILISATION_GAP_S = 300.0
#: Past auctions that a page reads, besides the rest of an hour. One that was not for the tenant is not on the page.
AUCTIONS_READ_MAX = 5_000
#: Time after the end of a month for which its invoices are not final: charges of its last moments may be on their way
#: to the database, and its clock may be set back a little [s].
INVOICE_OPEN_S = 600.0
#: Tariffs of a price list; a longer one is answered 422.
TARIFFS_MAX = 1_000
#: Largest `chunk_bytes` of a job: the chunk size of the paper "Transfer as a Service". A larger one is answered 422.
CHUNK_BYTES_MAX = 64 << 20
#: Largest `max_vms` of a job, and of `--max-vms`.
MACHINES_MAX = 1_000
#: Sites that one server names; more are refused.
SITES_MAX = 1_000
#: Time for which the grid is kept in memory; it is then read anew.
GRID_KEPT_S = 60.0
#: Time for which the address of a user's own console signs a browser in [s], and the maximum unused codes; beyond it
#: the oldest is forgotten.
CODE_S = 600.0
CODES_MAX = 16
#: Jobs of the command line that a user's own console shows, newest first.
OWN_JOBS_SHOWN_MAX = 200
#: Links that the scheduler remembers; beyond it those that were used the longest ago are forgotten. Decisions that are
#: kept of one link, and of all links, by the scheduler and by gateways each; older ones are removed.
TUNED_LINKS_MAX = 10_000
LINK_DECISIONS_PER_LINK = 200
LINK_DECISIONS_MAX = 100_000
