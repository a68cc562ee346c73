package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
)

// schedule is an automatic shutdown (Microsoft.DevTestLab/schedules, API version 2018-09-15), for which there is no fake.
type schedule struct {
	ID         string             `json:"id"`
	Name       string             `json:"name"`
	Location   string             `json:"location"`
	Tags       map[string]string  `json:"tags,omitempty"`
	Properties scheduleProperties `json:"properties"`
}

type scheduleProperties struct {
	Status           string            `json:"status"`
	TaskType         string            `json:"taskType"`
	DailyRecurrence  map[string]string `json:"dailyRecurrence"`
	TimeZoneID       string            `json:"timeZoneId"`
	TargetResourceID string            `json:"targetResourceId"`
}

var schedulePath = regexp.MustCompile(`(?i)^/subscriptions/[^/]+/resourceGroups/([^/]+)/providers/Microsoft\.DevTestLab/schedules(?:/([^/]+))?$`)
var timeOfDay = regexp.MustCompile(`^([01]\d|2[0-3])[0-5]\d$`)

// serveSchedule answers a request about schedules. All its operations end at once.
func (f *face) serveSchedule(w http.ResponseWriter, method, group, name string, body []byte) {
	c := f.cloud
	switch {
	case method == http.MethodGet && name == "":
		writeJSON(w, http.StatusOK, map[string]any{"value": c.plans.listed(group, c.lag())})
	case method == http.MethodPut:
		made := schedule{}
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&made); err != nil {
			writeError(w, badRequest("InvalidRequestContent", err.Error()))
			return
		}
		target := c.vms.byID(made.Properties.TargetResourceID)
		if target == nil || made.Properties.TaskType != "ComputeVmShutdownTask" || !timeOfDay.MatchString(made.Properties.DailyRecurrence["time"]) ||
			!strings.EqualFold(name, "shutdown-computevm-"+*target.Name) || !strings.EqualFold(made.Location, *target.Location) {
			writeError(w, badRequest("InvalidResourceProperties", "The schedule of a virtual machine is shutdown-computevm-NAME, with its time as HHmm."))
			return
		}
		made.Name, made.ID = name, idOf(group, c.plans.kind, name)
		writeJSON(w, http.StatusOK, c.plans.put(group, name, made))
	case method == http.MethodDelete && name != "":
		c.plans.remove(group, name)
		w.WriteHeader(http.StatusOK)
	default:
		writeError(w, &apiError{http.StatusNotFound, "ResourceNotFound", "The Resource 'schedules/" + name + "' was not found."})
	}
}
