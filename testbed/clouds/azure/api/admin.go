package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v6"
)

// waitMax is the longest time that a request for changed machines waits.
const waitMax = time.Second

// fault is what happens to the calls that it matches.
//
//   - refuse: answer with the error; nothing is done
//   - poll: the long-running operation that the call begins fails with the error
//   - lose: do it, and close the connection without an answer
//   - hold: do nothing, and never answer; hold-after: do it, and never answer
type fault struct {
	apiError
	Match       string `json:"match"` // of "METHOD path", a regular expression
	Nth         int    `json:"nth"`   // which of the calls that match, from 1; 0: any
	Times       int    `json:"times"` // 0: always
	Mode        string `json:"mode"`
	RetryAfterS int    `json:"retry_after_s"`
	used, seen  int
}

func (f *fault) is(modes ...string) bool {
	for _, mode := range modes {
		if f != nil && f.Mode == mode {
			return true
		}
	}
	return false
}

// call is an entry of the log.
type call struct {
	Number int    `json:"number"`
	Method string `json:"method"`
	Path   string `json:"path"`
	Query  string `json:"query"`
}

// record logs a call, and returns the fault that happens to it.
func (f *face) record(r *http.Request) *fault {
	f.calls = append(f.calls, call{len(f.calls) + 1, r.Method, r.URL.Path, r.URL.RawQuery})
	for _, each := range f.faults {
		if matched, _ := regexp.MatchString(each.Match, r.Method+" "+r.URL.Path); !matched {
			continue
		}
		each.seen++
		if (each.Nth == 0 || each.Nth == each.seen) && (each.Times == 0 || each.used < each.Times) {
			each.used++
			return each
		}
	}
	return nil
}

// serveAdmin answers the test's own requests.
func (f *face) serveAdmin(w http.ResponseWriter, r *http.Request) {
	what := strings.TrimPrefix(r.URL.Path, "/_testbed/")
	if what == "machines" {
		f.serveRunning(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	c := f.cloud
	c.Lock()
	defer c.Unlock()
	name := r.URL.Query().Get("name")
	if console, ok := strings.CutPrefix(what, "console/"); ok {
		text, _ := os.ReadFile(filepath.Join(c.settings.Consoles, filepath.Base(console)+".console"))
		_, _ = w.Write(text)
		return
	}
	switch what {
	case "identity": // The endpoint of managed identities in Azure's App Service; the client's header is its name.
		writeJSON(w, http.StatusOK, map[string]any{
			"access_token": r.Header.Get("X-IDENTITY-HEADER"), "expires_on": time.Now().Add(time.Hour).Unix(),
			"resource": r.URL.Query().Get("resource"), "token_type": "Bearer",
		})
	case "settings":
		f.change(w, body, &c.settings)
	case "faults":
		f.faults = nil
		f.change(w, body, &f.faults)
	case "principals":
		f.change(w, body, &f.principals)
	case "calls":
		writeJSON(w, http.StatusOK, map[string]any{"calls": f.calls, "held": f.held})
	case "resources":
		writeJSON(w, http.StatusOK, f.everything())
	case "stopped", "deallocated":
		if m := c.machines[keyOf(c.settings.Group, name)]; m != nil {
			m.power = what
			c.notify()
		}
	case "disks": // A disk that no machine has.
		id := idOf(c.settings.Group, c.disks.kind, name)
		c.disks.put(c.settings.Group, name, armcompute.Disk{ID: &id, Name: &name, Location: to.Ptr("westeurope"), Properties: &armcompute.DiskProperties{}})
	case "evict":
		f.evict(name)
	default:
		writeError(w, &apiError{http.StatusNotFound, "NoSuchRoute", r.URL.Path})
	}
}

func (f *face) change(w http.ResponseWriter, body []byte, into any) {
	if err := json.Unmarshal(body, into); err != nil {
		writeError(w, badRequest("InvalidRequestContent", err.Error()))
	}
}

type running struct {
	Name       string `json:"name"`
	Number     int    `json:"number"`
	CustomData string `json:"custom_data"`
	Address    string `json:"address"`
	Private    string `json:"private"`
}

// serveRunning answers with the machines that should run, as soon as they are not the `known` ones any more.
func (f *face) serveRunning(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), waitMax)
	defer cancel()
	known := map[string]bool{}
	for _, name := range strings.Split(r.URL.Query().Get("known"), ",") {
		if name != "" {
			known[name] = true
		}
	}
	for {
		f.cloud.Lock()
		changed, all, same := f.cloud.changed, []running{}, true
		for _, m := range f.cloud.machines {
			if m.power == "running" {
				all = append(all, running{m.name, m.number, m.customData, m.address, m.private})
				same = same && known[m.name]
			}
		}
		f.cloud.Unlock()
		if !same || len(all) != len(known) || ctx.Err() != nil {
			writeJSON(w, http.StatusOK, all)
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// everything returns the names of all resources by type.
func (f *face) everything() map[string][]string {
	c, all := f.cloud, map[string][]string{}
	collect := func(kind string, id *string) { all[kind] = append(all[kind], *id) }
	for _, each := range c.vms.living() {
		collect(c.vms.kind, each.Name)
	}
	for _, each := range c.disks.living() {
		collect(c.disks.kind, each.Name)
	}
	for _, each := range c.nets.living() {
		collect(c.nets.kind, each.Name)
	}
	for _, each := range c.nics.living() {
		collect(c.nics.kind, each.Name)
	}
	for _, each := range c.ips.living() {
		collect(c.ips.kind, each.Name)
	}
	for _, each := range c.groups.living() {
		collect(c.groups.kind, each.Name)
	}
	for _, each := range c.plans.living() {
		collect(c.plans.kind, &each.Name)
	}
	return all
}

// evict announces the eviction of a spot machine, and carries it out when the notice is over.
func (f *face) evict(name string) {
	c := f.cloud
	m, v := c.machines[keyOf(c.settings.Group, name)], c.vms.get(c.settings.Group, name)
	if m == nil || v == nil || v.Properties.Priority == nil || *v.Properties.Priority != "Spot" {
		return
	}
	notice := time.Duration(c.settings.NoticeS) * time.Second
	m.evictAt = time.Now().Add(notice)
	time.AfterFunc(notice, func() {
		c.Lock()
		defer c.Unlock()
		if v := c.vms.get(m.group, m.name); v == nil {
			return
		} else if policy := v.Properties.EvictionPolicy; policy != nil && *policy == "Delete" {
			c.deleteMachine(m.group, m.name)
			return
		}
		m.power = "deallocated"
		c.notify()
	})
}
