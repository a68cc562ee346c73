package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
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

// schedulesPerPage is the length of a page of their list. Azure's are longer, but a list may have several there, too.
const schedulesPerPage = 2

var timeOfDay = regexp.MustCompile(`^([01]\d|2[0-3])[0-5]\d$`)

// serveSchedule answers a request about schedules. All its operations end at once.
func (f *face) serveSchedule(w http.ResponseWriter, r *http.Request, group, name string, body []byte) {
	c, method := f.cloud, r.Method
	switch {
	case method == http.MethodGet && name == "":
		listed := c.plans.listed(group, c.lag())
		first, _ := strconv.Atoi(r.URL.Query().Get("$skiptoken"))
		page := map[string]any{"value": listed[min(first, len(listed)):min(first+schedulesPerPage, len(listed))]}
		if next := first + schedulesPerPage; next < len(listed) {
			link := url.URL{Scheme: "https", Host: r.Host, Path: r.URL.Path}
			link.RawQuery = url.Values{"api-version": r.URL.Query()["api-version"], "$skiptoken": {strconv.Itoa(next)}}.Encode()
			page["nextLink"] = link.String()
		}
		writeJSON(w, http.StatusOK, page)
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
