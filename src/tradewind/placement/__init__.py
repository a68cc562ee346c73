"""Placement of split proxies: which flow takes which proxies under a budget. No I/O.

- `problem`: regions, flows and prices; `paths`: rate, completion time and price of every path of every flow;
  `slow_start`: completion time of short flows; `use_cases`: problems of typical use cases, from a seed
- `assignment`: flows on proxy instances, within capacities and budget; `packing`: do whole flows fit the instances
- `flow_greedy`, `proxy_greedy`: the algorithms of the CloudPilot paper
- `model`, `relaxation`: the linear model and its bound; `exact`: branch and bound; `diving`, `local_search`: heuristics
- `best`: the default, of all these; `place`: one algorithm for one problem; `plan`: the result; `check`: its check
"""
