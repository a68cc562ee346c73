package main

import (
	"fmt"
	"net/http"
	"sort"
	"strings"
	"sync"
	"time"

	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v6"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v6"
)

// settings of a run, changed by tests through /_testbed/settings.
type settings struct {
	ListLagMs   int64            `json:"list_lag_ms"`  // time until lists show a change
	OperationMs int64            `json:"operation_ms"` // duration of a long-running operation
	CreateMs    int64            `json:"create_ms"`    // time until a machine's creation is reported as done
	PageItems   int              `json:"page_items"`   // items on one page of a list
	Cores       map[string]int64 `json:"cores"`        // quota of vCPUs by location
	PublicIPs   int              `json:"public_ips"`   // quota of public addresses by location
	NoticeS     int64            `json:"notice_s"`     // time from the notice of an eviction to the eviction
	PublicNet   string           `json:"public_net"`   // first three bytes of public addresses
	Group       string           `json:"group"`        // the only resource group
	Consoles    string           `json:"consoles"`     // folder of the consoles of machines, NAME.console
	Unavailable map[string]bool  `json:"unavailable"`  // machine types that the subscription may not use
}

// apiError is an error of the API. It is also a Go error, so that handlers return it where a fake expects one.
type apiError struct {
	Status  int    `json:"status"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *apiError) Error() string { return e.Code + ": " + e.Message }

// resource is a stored resource with the times at which lists show it, and stop to show it.
type resource[T any] struct {
	value T
	made  time.Time
	gone  time.Time
}

// table holds the resources of one type by resource group and name, in lower case, as ARM compares them.
type table[T any] struct {
	kind  string
	items map[string]*resource[T]
}

func newTable[T any](kind string) *table[T] {
	return &table[T]{kind: kind, items: map[string]*resource[T]{}}
}

func keyOf(group, name string) string { return strings.ToLower(group + "/" + name) }

func (t *table[T]) get(group, name string) *T {
	if found, ok := t.items[keyOf(group, name)]; ok && found.gone.IsZero() {
		return &found.value
	}
	return nil
}

func (t *table[T]) byID(id string) *T {
	parts := strings.Split(id, "/")
	if len(parts) < 9 || !strings.EqualFold(strings.Join(parts[6:8], "/"), t.kind) {
		return nil
	}
	return t.get(parts[4], parts[8])
}

func (t *table[T]) put(group, name string, value T) *T {
	if found := t.items[keyOf(group, name)]; found != nil && found.gone.IsZero() {
		found.value = value
		return &found.value
	}
	made := &resource[T]{value: value, made: time.Now()}
	t.items[keyOf(group, name)] = made
	return &made.value
}

func (t *table[T]) remove(group, name string) {
	if found := t.items[keyOf(group, name)]; found != nil && found.gone.IsZero() {
		found.gone = time.Now()
	}
}

func (t *table[T]) removeID(id string) {
	parts := strings.Split(id, "/")
	if len(parts) >= 9 {
		t.remove(parts[4], parts[8])
	}
}

// living returns all resources that exist.
func (t *table[T]) living() (all []*T) {
	for _, each := range t.items {
		if each.gone.IsZero() {
			all = append(all, &each.value)
		}
	}
	return all
}

// listed returns what a list shows now: it lags behind.
func (t *table[T]) listed(group string, lag time.Duration) []*T {
	all, now, keys := []*T{}, time.Now(), []string{}
	for key := range t.items {
		keys = append(keys, key)
	}
	sort.Strings(keys) // Pages must not change from one request to the next.
	for _, key := range keys {
		each := t.items[key]
		shown := now.Sub(each.made) >= lag && (each.gone.IsZero() || now.Sub(each.gone) < lag)
		if shown && strings.HasPrefix(key, strings.ToLower(group)+"/") {
			all = append(all, &each.value)
		}
	}
	return all
}

// machine is what the API does not show of a VM.
type machine struct {
	group, name string
	number      int
	power       string // creating, running, stopped, deallocated
	customData  string
	failure     *apiError
	evictAt     time.Time
	address     string // at which others reach it
	private     string
	identities  []string
}

type cloud struct {
	sync.Mutex
	settings settings
	vms      *table[armcompute.VirtualMachine]
	disks    *table[armcompute.Disk]
	nets     *table[armnetwork.VirtualNetwork]
	nics     *table[armnetwork.Interface]
	ips      *table[armnetwork.PublicIPAddress]
	groups   *table[armnetwork.SecurityGroup]
	machines map[string]*machine
	plans    *table[schedule]
	serial   int
	changed  chan struct{} // closed when the machines that should run change
}

func newCloud() *cloud {
	return &cloud{
		settings: settings{
			OperationMs: 20, CreateMs: 200, PageItems: 2, PublicIPs: 100, NoticeS: 30, PublicNet: "10.77.0", Group: "tradewind",
			Cores: map[string]int64{}, Unavailable: map[string]bool{},
		},
		vms:      newTable[armcompute.VirtualMachine]("Microsoft.Compute/virtualMachines"),
		disks:    newTable[armcompute.Disk]("Microsoft.Compute/disks"),
		nets:     newTable[armnetwork.VirtualNetwork]("Microsoft.Network/virtualNetworks"),
		nics:     newTable[armnetwork.Interface]("Microsoft.Network/networkInterfaces"),
		ips:      newTable[armnetwork.PublicIPAddress]("Microsoft.Network/publicIPAddresses"),
		groups:   newTable[armnetwork.SecurityGroup]("Microsoft.Network/networkSecurityGroups"),
		plans:    newTable[schedule]("Microsoft.DevTestLab/schedules"),
		machines: map[string]*machine{},
		changed:  make(chan struct{}),
	}
}

func (c *cloud) lag() time.Duration { return time.Duration(c.settings.ListLagMs) * time.Millisecond }

func (c *cloud) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func idOf(group, kind, name string) string {
	return fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/%s/%s", subscription, group, kind, name)
}

// refuse makes a fake answer with an error. The fakes lose its message: the face has it from `lastError`.
func (c *cloud) refuse(e *azfake.ErrorResponder, status int, code, format string, words ...any) {
	lastError = &apiError{status, code, fmt.Sprintf(format, words...)}
	e.SetResponseError(status, code)
}

// lastError is the error of the request that is handled. One request is handled at a time.
var lastError *apiError

func done[R any](answer R, status int) (p azfake.PollerResponder[R]) {
	p.SetTerminalResponse(status, answer, nil)
	return p
}

func answer[R any](value R) (r azfake.Responder[R]) {
	r.SetResponse(http.StatusOK, value, nil)
	return r
}
