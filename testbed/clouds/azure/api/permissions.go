package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"strings"
)

// principal is a user or an identity, with the actions of its role. None: it may do all.
type principal struct {
	Name    string   `json:"name"`
	Actions []string `json:"actions"`
	// At has further actions, by the id of the only resource for which they are.
	At map[string][]string `json:"at"`
}

// permission is one role of a principal, as Azure lists it (Microsoft.Authorization/permissions, API version 2022-04-01).
type permission struct {
	Actions        []string `json:"actions"`
	NotActions     []string `json:"notActions"`
	DataActions    []string `json:"dataActions"`
	NotDataActions []string `json:"notDataActions"`
}

// permissionsPath is of a resource group or a resource in it.
var permissionsPath = regexp.MustCompile(`(?i)^(/subscriptions/[^/]+/resourceGroups/[^/]+(?:/providers/[^/]+(?:/[^/]+/[^/]+)+)?)/providers/Microsoft\.Authorization/permissions$`)

// servePermissions lists the permissions of a principal at a scope, one role for each action.
func (f *face) servePermissions(w http.ResponseWriter, r *http.Request, who principal, scope string) {
	if refused := who.refusal("Microsoft.Authorization/permissions/read", scope); refused != nil {
		writeError(w, refused)
		return
	}
	actions := who.Actions
	if actions == nil {
		actions = []string{"*"}
	}
	roles := []permission{}
	for _, action := range append(append([]string{}, actions...), who.At[scope]...) {
		roles = append(roles, permission{[]string{action}, []string{}, []string{}, []string{}})
	}
	content, _ := json.Marshal(map[string]any{"value": roles})
	hostURL = "https://" + r.Host
	f.writePage(w, r, content)
}

func (p *principal) may(action string) bool {
	if p.Actions == nil {
		return true
	}
	for _, each := range p.Actions {
		if ok, _ := path.Match(strings.ToLower(strings.ReplaceAll(each, "/", "|")), strings.ToLower(strings.ReplaceAll(action, "/", "|"))); ok {
			return true
		}
	}
	return false
}

// refusal returns why a principal may not do something, as Azure says it.
func (p *principal) refusal(action, scope string) *apiError {
	if p.may(action) {
		return nil
	}
	return &apiError{http.StatusForbidden, "AuthorizationFailed", fmt.Sprintf(
		"The client '%s' with object id '%s' does not have authorization to perform action '%s' over scope '%s' or the scope is invalid. "+
			"If access was recently granted, please refresh your credentials.", p.Name, p.Name, action, scope)}
}

// linkedRefusal returns why a principal may not refer to the resources that a body names.
func (p *principal) linkedRefusal(action, scope string, body []byte) *apiError {
	for _, link := range links(body) {
		if !p.may(link.action) {
			return &apiError{http.StatusForbidden, "LinkedAuthorizationFailed", fmt.Sprintf(
				"The client '%s' with object id '%s' has permission to perform action '%s' on scope '%s'; however, it does not have permission "+
					"to perform action(s) '%s' on the linked scope(s) '%s' or the linked scope(s) are invalid.", p.Name, p.Name, action, scope, link.action, link.id)}
		}
	}
	return nil
}

type link struct{ action, id string }

// Actions that a reference to a resource needs, by its type.
var linkActions = map[string]string{
	"microsoft.network/virtualnetworks":                "Microsoft.Network/virtualNetworks/subnets/join/action",
	"microsoft.network/networksecuritygroups":          "Microsoft.Network/networkSecurityGroups/join/action",
	"microsoft.network/publicipaddresses":              "Microsoft.Network/publicIPAddresses/join/action",
	"microsoft.network/networkinterfaces":              "Microsoft.Network/networkInterfaces/join/action",
	"microsoft.managedidentity/userassignedidentities": "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",
	"microsoft.compute/images":                         "Microsoft.Compute/images/read",
}

// links returns what a body refers to: resources whose ids are its texts and keys, and the disk that a machine is made with.
func links(body []byte) (found []link) {
	var document any
	if json.Unmarshal(body, &document) != nil {
		return nil
	}
	visit := func(text string) {
		parts := strings.Split(strings.ToLower(text), "/")
		if len(parts) >= 9 && parts[1] == "subscriptions" {
			if action, ok := linkActions[parts[6]+"/"+parts[7]]; ok {
				found = append(found, link{action, text})
			}
		}
	}
	var walk func(any)
	walk = func(node any) {
		switch node := node.(type) {
		case map[string]any:
			if _, made := node["managedDisk"]; made {
				// Virtual Machine Contributor has this action for the disks that are made with machines.
				found = append(found, link{"Microsoft.Compute/disks/write", fmt.Sprint(node["name"])})
			}
			for key, value := range node {
				visit(key)
				walk(value)
			}
		case []any:
			for _, value := range node {
				walk(value)
			}
		case string:
			visit(node)
		}
	}
	walk(document)
	return found
}
