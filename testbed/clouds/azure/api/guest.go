package main

import (
	"net"
	"net/http"
	"strings"
	"time"
)

// What the identity of a machine may do, unless a test says otherwise.
var guestActions = []string{"Microsoft.Compute/virtualMachines/delete"}

// serveGuests is the metadata service that a machine reaches at 169.254.169.254. It knows a machine by its address.
func (f *face) serveGuests(w http.ResponseWriter, r *http.Request) {
	c := f.cloud
	c.Lock()
	defer c.Unlock()
	from, _, _ := net.SplitHostPort(r.RemoteAddr)
	var guest *machine
	for _, m := range c.machines {
		if m.address == from || m.private == from {
			guest = m
		}
	}
	if guest == nil || r.Header.Get("Metadata") != "true" || r.URL.Query().Get("api-version") == "" {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": "invalid_request", "error_description": "Required metadata header not specified"})
		return
	}
	switch strings.TrimPrefix(r.URL.Path, "/metadata/") {
	case "identity/oauth2/token":
		f.serveToken(w, r, guest)
	case "scheduledevents":
		events := []map[string]any{}
		if !guest.evictAt.IsZero() {
			events = append(events, map[string]any{
				"EventId": "evict-" + guest.name, "EventType": "Preempt", "ResourceType": "VirtualMachine", "Resources": []string{guest.name},
				"EventStatus": "Scheduled", "NotBefore": guest.evictAt.UTC().Format(time.RFC1123), "EventSource": "Platform", "DurationInSeconds": -1,
			})
		}
		writeJSON(w, http.StatusOK, map[string]any{"DocumentIncarnation": len(events), "Events": events})
	default:
		writeJSON(w, http.StatusNotFound, map[string]string{"error": "not found"})
	}
}

func (f *face) serveToken(w http.ResponseWriter, r *http.Request, guest *machine) {
	wanted := r.URL.Query().Get("msi_res_id")
	for _, identity := range guest.identities {
		if wanted != "" && !strings.EqualFold(identity, wanted) {
			continue
		}
		token := "guest " + strings.ToLower(identity)
		if _, known := f.principals[token]; !known {
			f.principals[token] = principal{Name: identity, Actions: guestActions}
		}
		writeJSON(w, http.StatusOK, map[string]any{"access_token": token, "expires_in": "3599", "resource": r.URL.Query().Get("resource"), "token_type": "Bearer"})
		return
	}
	writeJSON(w, http.StatusBadRequest, map[string]string{"error": "invalid_request", "error_description": "Identity not found"})
}
