package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	cfake "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v6/fake"
	nfake "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v6/fake"
)

// pollMs is the time after which clients should look at an operation again.
const pollMs = "20"

type transport interface {
	Do(*http.Request) (*http.Response, error)
}

// route says which operation of which fake a request is, and the permission that it needs.
type route struct {
	method    string
	path      *regexp.Regexp
	operation string
	action    string
	fake      transport
	isList    bool
}

// operation is a long-running operation, which clients poll.
type operation struct {
	provider string
	ends     time.Time
	failure  *apiError
}

// face is the HTTP side of the cloud.
type face struct {
	cloud      *cloud
	routes     []route
	operations map[string]operation
	principals map[string]principal
	faults     []*fault
	calls      []call
	held       int
}

func newFace(c *cloud) *face {
	f := &face{
		cloud: c, operations: map[string]operation{},
		principals: map[string]principal{"owner": {Name: "owner"}},
	}
	f.addRoutes(cfake.NewServerFactoryTransport(c.compute()), nfake.NewServerFactoryTransport(c.network()))
	return f
}

func (f *face) addRoutes(compute, network transport) {
	add := func(fake transport, method, path, operation, action string, isList bool) {
		f.routes = append(f.routes, route{method, regexp.MustCompile(`(?i)^/subscriptions/[^/]+` + path + `$`), operation, action, fake, isList})
	}
	crud := func(fake transport, client, kind, list string) {
		base := `/resourceGroups/[^/]+/providers/` + strings.ReplaceAll(kind, ".", `\.`)
		add(fake, "GET", base, client+"."+list, kind+"/read", true)
		add(fake, "PUT", base+"/[^/]+", client+".BeginCreateOrUpdate", kind+"/write", false)
		add(fake, "GET", base+"/[^/]+", client+".Get", kind+"/read", false)
		add(fake, "DELETE", base+"/[^/]+", client+".BeginDelete", kind+"/delete", false)
	}
	crud(compute, "VirtualMachinesClient", "Microsoft.Compute/virtualMachines", "NewListPager")
	crud(compute, "DisksClient", "Microsoft.Compute/disks", "NewListByResourceGroupPager")
	crud(network, "VirtualNetworksClient", "Microsoft.Network/virtualNetworks", "NewListPager")
	crud(network, "InterfacesClient", "Microsoft.Network/networkInterfaces", "NewListPager")
	crud(network, "PublicIPAddressesClient", "Microsoft.Network/publicIPAddresses", "NewListPager")
	crud(network, "SecurityGroupsClient", "Microsoft.Network/networkSecurityGroups", "NewListPager")
	vm := `/resourceGroups/[^/]+/providers/Microsoft\.Compute/virtualMachines/[^/]+`
	add(compute, "GET", vm+"/instanceView", "VirtualMachinesClient.InstanceView", "Microsoft.Compute/virtualMachines/instanceView/read", false)
	add(compute, "POST", vm+"/retrieveBootDiagnosticsData", "VirtualMachinesClient.RetrieveBootDiagnosticsData", "Microsoft.Compute/virtualMachines/retrieveBootDiagnosticsData/action", false)
	add(compute, "GET", `/providers/Microsoft\.Compute/locations/[^/]+/usages`, "UsageClient.NewListPager", "Microsoft.Compute/locations/usages/read", true)
	add(compute, "GET", `/providers/Microsoft\.Compute/skus`, "ResourceSKUsClient.NewListPager", "Microsoft.Compute/skus/read", true)
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func writeError(w http.ResponseWriter, e *apiError) {
	w.Header().Set("x-ms-error-code", e.Code)
	writeJSON(w, e.Status, map[string]any{"error": map[string]string{"code": e.Code, "message": e.Message}})
}

// ServeHTTP handles one request at a time, apart from those that wait.
func (f *face) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/_testbed/") {
		f.serveAdmin(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	f.cloud.Lock()
	who, known := f.principals[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	if !known {
		f.cloud.Unlock()
		writeError(w, &apiError{http.StatusUnauthorized, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing or unknown."})
		return
	}
	if id, ok := strings.CutPrefix(r.URL.Path, "/_operations/"); ok {
		f.poll(w, id, who)
		f.cloud.Unlock()
		return
	}
	rule := f.record(r)
	answered := httptest.NewRecorder()
	if !rule.is("refuse", "hold") {
		f.handle(answered, r, body, who, rule)
	}
	f.cloud.Unlock()
	switch {
	case rule.is("refuse"):
		if rule.RetryAfterS > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(rule.RetryAfterS))
		}
		writeError(w, &rule.apiError)
	case rule.is("hold", "hold-after"):
		f.hold(r.Context())
	case rule.is("lose"):
		panic(http.ErrAbortHandler)
	default:
		for name, values := range answered.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(answered.Code)
		_, _ = w.Write(answered.Body.Bytes())
	}
}

// hold keeps a request unanswered until its client is gone.
func (f *face) hold(ctx context.Context) {
	f.cloud.Lock()
	f.held++
	f.cloud.Unlock()
	<-ctx.Done()
	panic(http.ErrAbortHandler)
}

func (f *face) handle(w http.ResponseWriter, r *http.Request, body []byte, who principal, rule *fault) {
	if refused := f.wrongPlace(r); refused != nil {
		writeError(w, refused)
		return
	}
	if found := schedulePath.FindStringSubmatch(r.URL.Path); found != nil {
		verb := map[string]string{"GET": "read", "PUT": "write", "DELETE": "delete"}[r.Method]
		if refused := who.refusal("Microsoft.DevTestLab/schedules/"+verb, r.URL.Path); refused != nil {
			writeError(w, refused)
			return
		}
		f.serveSchedule(w, r, found[1], found[2], body)
		return
	}
	if found := permissionsPath.FindStringSubmatch(r.URL.Path); found != nil && r.Method == http.MethodGet {
		f.servePermissions(w, r, who, found[1])
		return
	}
	for _, each := range f.routes {
		if each.method != r.Method || !each.path.MatchString(r.URL.Path) {
			continue
		}
		refused := who.refusal(each.action, r.URL.Path)
		if refused == nil && r.Method == http.MethodPut {
			refused = who.linkedRefusal(each.action, r.URL.Path, body)
		}
		if refused != nil {
			writeError(w, refused)
			return
		}
		f.dispatch(w, r, body, each, rule)
		return
	}
	writeError(w, &apiError{http.StatusNotImplemented, "NoSuchRoute", r.Method + " " + r.URL.Path})
}

// wrongPlace refuses requests for another subscription or resource group.
func (f *face) wrongPlace(r *http.Request) *apiError {
	parts := strings.Split(r.URL.Path, "/")
	if len(parts) < 3 || parts[2] != subscription {
		return &apiError{http.StatusNotFound, "SubscriptionNotFound", "The subscription '" + parts[min(2, len(parts)-1)] + "' could not be found."}
	}
	if len(parts) > 4 && strings.EqualFold(parts[3], "resourceGroups") && !strings.EqualFold(parts[4], f.cloud.settings.Group) {
		return &apiError{http.StatusNotFound, "ResourceGroupNotFound", "Resource group '" + parts[4] + "' could not be found."}
	}
	if r.URL.Query().Get("api-version") == "" {
		return badRequest("MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests.")
	}
	return nil
}

func (f *face) dispatch(w http.ResponseWriter, r *http.Request, body []byte, to route, rule *fault) {
	r.URL.Host, r.URL.Scheme = r.Host, "https"
	hostURL = "https://" + r.Host
	// The fakes crash if a client goes away during a request: they then send on a closed channel. They end quickly without that.
	whole := context.WithoutCancel(r.Context())
	inner := r.Clone(context.WithValue(whole, runtime.CtxAPINameKey{}, to.operation))
	inner.Body = io.NopCloser(bytes.NewReader(body))
	lastError = nil
	answer, err := to.fake.Do(inner)
	if err != nil {
		var refused *azcore.ResponseError
		if errors.As(err, &refused) && lastError != nil {
			writeError(w, lastError)
			return
		}
		writeError(w, &apiError{http.StatusBadRequest, "InvalidRequestContent", err.Error()})
		return
	}
	content := []byte{}
	if answer.Body != nil {
		content, _ = io.ReadAll(answer.Body)
	}
	switch {
	case to.isList:
		f.writePage(w, r, content)
	case strings.Contains(to.operation, ".Begin") && answer.StatusCode != http.StatusNoContent:
		f.begin(w, r, to, content, rule)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(answer.StatusCode)
		_, _ = w.Write(content)
	}
}

// writePage answers with one page of a list.
func (f *face) writePage(w http.ResponseWriter, r *http.Request, content []byte) {
	list := struct {
		Value    []json.RawMessage `json:"value"`
		NextLink string            `json:"nextLink,omitempty"`
	}{}
	if err := json.Unmarshal(content, &list); err != nil {
		writeError(w, &apiError{http.StatusInternalServerError, "InternalServerError", err.Error()})
		return
	}
	query := r.URL.Query()
	first, _ := strconv.Atoi(query.Get("$skiptoken"))
	first = min(first, len(list.Value))
	end := min(first+f.cloud.settings.PageItems, len(list.Value))
	if end < len(list.Value) {
		query.Set("$skiptoken", strconv.Itoa(end))
		list.NextLink = hostURL + r.URL.Path + "?" + query.Encode()
	}
	list.Value = append([]json.RawMessage{}, list.Value[first:end]...)
	writeJSON(w, http.StatusOK, list)
}

// begin answers with a long-running operation (Azure-AsyncOperation).
func (f *face) begin(w http.ResponseWriter, r *http.Request, to route, content []byte, rule *fault) {
	c := f.cloud
	lasting := time.Duration(c.settings.OperationMs) * time.Millisecond
	made := operation{provider: strings.Split(to.action, "/")[0], ends: time.Now().Add(lasting)}
	if rule.is("poll") {
		made.failure = &rule.apiError
	}
	if parts := strings.Split(r.URL.Path, "/"); to.operation == "VirtualMachinesClient.BeginCreateOrUpdate" {
		group, name, failure := parts[4], parts[8], made.failure
		time.AfterFunc(lasting, func() {
			c.Lock()
			defer c.Unlock()
			c.allocate(group, name, failure)
		})
		if failure == nil {
			made.ends = time.Now().Add(time.Duration(c.settings.CreateMs) * time.Millisecond)
		}
	}
	id := fmt.Sprint(len(f.operations) + 1)
	f.operations[id] = made
	w.Header().Set("Azure-AsyncOperation", fmt.Sprintf("%s/_operations/%s?api-version=%s", hostURL, id, r.URL.Query().Get("api-version")))
	w.Header().Set("x-ms-retry-after-ms", pollMs)
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodDelete {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(content)
}

func (f *face) poll(w http.ResponseWriter, id string, who principal) {
	found, ok := f.operations[id]
	if !ok {
		writeError(w, &apiError{http.StatusNotFound, "NotFound", "The entity was not found."})
		return
	}
	if refused := who.refusal(found.provider+"/locations/operations/read", "/subscriptions/"+subscription); refused != nil {
		writeError(w, refused)
		return
	}
	status := map[string]any{"name": id, "status": "InProgress"}
	if !time.Now().Before(found.ends) {
		status["status"] = "Succeeded"
		if found.failure != nil {
			status["status"], status["error"] = "Failed", map[string]string{"code": found.failure.Code, "message": found.failure.Message}
		}
	}
	w.Header().Set("x-ms-retry-after-ms", pollMs)
	writeJSON(w, http.StatusOK, status)
}
