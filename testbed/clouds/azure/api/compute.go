package main

import (
	"context"
	"encoding/base64"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v6"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v6/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v6"
)

const customDataBytesMax = 64 * 1024

// Images that the stand-in's market has: publisher, offer, SKU.
var images = map[string]bool{
	"Debian/debian-12/12-gen2":            true,
	"Canonical/ubuntu-24_04-lts/minimal":  true,
	"Canonical/ubuntu-24_04-lts/server":   true,
	"Canonical/0001-com-ubuntu/22_04-lts": true,
}

// Machine types that exist, as `Standard_D8_v5`: family, vCPUs, options, version.
var sizePattern = regexp.MustCompile(`^Standard_([A-Z])(\d+)([a-z]*)_v(\d)$`)

func vcpusOf(size string) int64 {
	found := sizePattern.FindStringSubmatch(size)
	if found == nil {
		return 0
	}
	count, _ := strconv.ParseInt(found[2], 10, 64)
	return count
}

func familyOf(size string) string {
	found := sizePattern.FindStringSubmatch(size)
	return "standard" + found[1] + strings.ToUpper(found[3]) + "v" + found[4] + "Family"
}

func sizeOf(v *armcompute.VirtualMachine) string { return string(*v.Properties.HardwareProfile.VMSize) }

func (c *cloud) compute() *fake.ServerFactory {
	s := &fake.ServerFactory{}
	c.serveMachines(&s.VirtualMachinesServer)
	c.serveMachineLists(&s.VirtualMachinesServer)
	c.serveDisks(&s.DisksServer)
	c.serveUsage(&s.UsageServer)
	c.serveSizes(&s.ResourceSKUsServer)
	return s
}

func (c *cloud) serveMachines(s *fake.VirtualMachinesServer) {
	type made = armcompute.VirtualMachinesClientCreateOrUpdateResponse
	s.BeginCreateOrUpdate = func(_ context.Context, group, name string, v armcompute.VirtualMachine, options *armcompute.VirtualMachinesClientBeginCreateOrUpdateOptions) (p azfake.PollerResponder[made], e azfake.ErrorResponder) {
		if was := c.vms.get(group, name); was != nil {
			if options != nil && options.IfNoneMatch != nil {
				c.refuse(&e, http.StatusPreconditionFailed, "ConditionNotMet", "The condition '*' in the If-None-Match header was not satisfied.")
				return
			}
			c.refuse(&e, http.StatusConflict, "PropertyChangeNotAllowed", "Changing property 'osProfile.customData' is not allowed.")
			return
		}
		if wrong := c.wrongMachine(&v); wrong != nil {
			c.refuse(&e, wrong.Status, wrong.Code, "%s", wrong.Message)
			return
		}
		return done(made{VirtualMachine: *c.startMachine(group, name, v)}, http.StatusOK), e
	}
	s.Get = func(_ context.Context, group, name string, options *armcompute.VirtualMachinesClientGetOptions) (r azfake.Responder[armcompute.VirtualMachinesClientGetResponse], e azfake.ErrorResponder) {
		v := c.vms.get(group, name)
		if v == nil {
			c.notFound(&e, c.vms.kind, name, group)
			return
		}
		shown := *v
		properties := *v.Properties
		shown.Properties = &properties
		c.refresh(&shown, group, name)
		if options != nil && options.Expand != nil && *options.Expand == armcompute.InstanceViewTypesInstanceView {
			shown.Properties.InstanceView = c.instanceView(group, name)
		}
		return answer(armcompute.VirtualMachinesClientGetResponse{VirtualMachine: shown}), e
	}
	s.BeginDelete = func(_ context.Context, group, name string, _ *armcompute.VirtualMachinesClientBeginDeleteOptions) (p azfake.PollerResponder[armcompute.VirtualMachinesClientDeleteResponse], e azfake.ErrorResponder) {
		if c.vms.get(group, name) == nil {
			return done(armcompute.VirtualMachinesClientDeleteResponse{}, http.StatusNoContent), e
		}
		c.deleteMachine(group, name)
		return done(armcompute.VirtualMachinesClientDeleteResponse{}, http.StatusOK), e
	}
}

func (c *cloud) serveMachineLists(s *fake.VirtualMachinesServer) {
	s.InstanceView = func(_ context.Context, group, name string, _ *armcompute.VirtualMachinesClientInstanceViewOptions) (r azfake.Responder[armcompute.VirtualMachinesClientInstanceViewResponse], e azfake.ErrorResponder) {
		if c.vms.get(group, name) == nil {
			c.notFound(&e, c.vms.kind, name, group)
			return
		}
		return answer(armcompute.VirtualMachinesClientInstanceViewResponse{VirtualMachineInstanceView: *c.instanceView(group, name)}), e
	}
	s.NewListPager = func(group string, _ *armcompute.VirtualMachinesClientListOptions) (p azfake.PagerResponder[armcompute.VirtualMachinesClientListResponse]) {
		all := c.vms.listed(group, c.lag())
		for _, each := range all {
			c.refresh(each, group, *each.Name)
		}
		p.AddPage(http.StatusOK, armcompute.VirtualMachinesClientListResponse{VirtualMachineListResult: armcompute.VirtualMachineListResult{Value: all}}, nil)
		return
	}
	s.RetrieveBootDiagnosticsData = func(_ context.Context, group, name string, _ *armcompute.VirtualMachinesClientRetrieveBootDiagnosticsDataOptions) (r azfake.Responder[armcompute.VirtualMachinesClientRetrieveBootDiagnosticsDataResponse], e azfake.ErrorResponder) {
		v := c.vms.get(group, name)
		if v == nil {
			c.notFound(&e, c.vms.kind, name, group)
			return
		}
		d := v.Properties.DiagnosticsProfile
		if d == nil || d.BootDiagnostics == nil || d.BootDiagnostics.Enabled == nil || !*d.BootDiagnostics.Enabled {
			c.refuse(&e, http.StatusConflict, "BootDiagnosticsNotEnabled", "Boot diagnostics is not enabled for the VM %s.", name)
			return
		}
		return answer(armcompute.VirtualMachinesClientRetrieveBootDiagnosticsDataResponse{RetrieveBootDiagnosticsDataResult: armcompute.RetrieveBootDiagnosticsDataResult{
			SerialConsoleLogBlobURI: to.Ptr(hostURL + "/_testbed/console/" + name),
		}}), e
	}
}

// hostURL is the URL of this server, as the client of the current request wrote it.
var hostURL string

func badRequest(code, message string) *apiError {
	return &apiError{http.StatusBadRequest, code, message}
}

// wrongMachine returns why Azure would refuse a machine at once.
func (c *cloud) wrongMachine(v *armcompute.VirtualMachine) *apiError {
	p := v.Properties
	if v.Location == nil || p == nil || p.HardwareProfile == nil || p.HardwareProfile.VMSize == nil || p.OSProfile == nil || p.StorageProfile == nil ||
		p.StorageProfile.OSDisk == nil || p.NetworkProfile == nil || len(p.NetworkProfile.NetworkInterfaces) != 1 {
		return badRequest("InvalidParameter", "Required parameter is missing (null).")
	}
	if vcpusOf(sizeOf(v)) == 0 {
		return badRequest("InvalidParameter", "The value "+sizeOf(v)+" provided for the VM size is not valid.")
	}
	if p.SecurityProfile != nil && p.SecurityProfile.SecurityType != nil && *p.SecurityProfile.SecurityType == "Standard" {
		return badRequest("InvalidParameter", "The value 'Standard' of parameter 'securityProfile.securityType' needs the feature Microsoft.Compute/UseStandardSecurityType.")
	}
	if c.settings.Unavailable[sizeOf(v)] {
		return &apiError{http.StatusConflict, "SkuNotAvailable", "The requested VM size for resource 'Following SKUs have failed for Capacity Restrictions: " + sizeOf(v) + "' is currently not available in location '" + *v.Location + "'."}
	}
	image := p.StorageProfile.ImageReference
	if image == nil || (image.ID == nil && (image.Publisher == nil || !images[*image.Publisher+"/"+*image.Offer+"/"+*image.SKU])) {
		return &apiError{http.StatusNotFound, "PlatformImageNotFound", "The platform image is not available. Verify that all fields in the storage profile are correct."}
	}
	if wrong := wrongLogin(p.OSProfile); wrong != nil {
		return wrong
	}
	if (p.EvictionPolicy != nil || p.BillingProfile != nil) && (p.Priority == nil || *p.Priority != armcompute.VirtualMachinePriorityTypesSpot) {
		return badRequest("OperationNotAllowed", "Eviction policy can be set only on Azure Spot Virtual Machines.")
	}
	nic := c.nics.byID(*p.NetworkProfile.NetworkInterfaces[0].ID)
	if nic == nil || !strings.EqualFold(*nic.Location, *v.Location) {
		return badRequest("InvalidResourceReference", "Resource "+*p.NetworkProfile.NetworkInterfaces[0].ID+" was not found.")
	}
	if nic.Properties.VirtualMachine != nil {
		return badRequest("NicInUse", "Network Interface "+*nic.ID+" is used by "+*nic.Properties.VirtualMachine.ID+".")
	}
	if public := nic.Properties.IPConfigurations[0].Properties.PublicIPAddress; public != nil && len(v.Zones) > 0 {
		if ip := c.ips.byID(*public.ID); zoneOf(ip.Zones) != zoneOf(v.Zones) {
			return badRequest("ComputeResourceZoneConstraintDoesNotMatchPublicIPAddressZoneConstraint", "Compute resource has a zone constraint "+zoneOf(v.Zones)+
				" but the PublicIPAddress "+*ip.ID+" used by the compute resource via NetworkInterface or LoadBalancer has a different zone constraint "+zoneOf(ip.Zones)+".")
		}
	}
	return c.overQuota(v)
}

func wrongLogin(p *armcompute.OSProfile) *apiError {
	if p.ComputerName == nil || len(*p.ComputerName) > 64 || p.AdminUsername == nil {
		return badRequest("InvalidParameter", "Linux host name cannot exceed 64 characters in length.")
	}
	linux := p.LinuxConfiguration
	if linux == nil || linux.DisablePasswordAuthentication == nil || !*linux.DisablePasswordAuthentication || linux.SSH == nil || len(linux.SSH.PublicKeys) == 0 ||
		!strings.HasPrefix(*linux.SSH.PublicKeys[0].KeyData, "ssh-") {
		return badRequest("InvalidParameter", "Authentication using either SSH or by user name and password must be enabled in Linux profile.")
	}
	if p.CustomData != nil {
		content, err := base64.StdEncoding.DecodeString(*p.CustomData)
		if err != nil || len(content) > customDataBytesMax {
			return badRequest("InvalidParameter", "Custom data in OSProfile must be in Base64 encoding and with a maximum length of 87380 characters.")
		}
	}
	return nil
}

func (c *cloud) usedCores(location string) (used int64) {
	for _, other := range c.vms.living() {
		if strings.EqualFold(*other.Location, location) {
			used += vcpusOf(sizeOf(other))
		}
	}
	return used
}

func (c *cloud) overQuota(v *armcompute.VirtualMachine) *apiError {
	limit, limited := c.settings.Cores[*v.Location]
	used, needed := c.usedCores(*v.Location), vcpusOf(sizeOf(v))
	if !limited || used+needed <= limit {
		return nil
	}
	text := func(n int64) string { return strconv.FormatInt(n, 10) }
	return &apiError{http.StatusConflict, "OperationNotAllowed", "Operation could not be completed as it results in exceeding approved Total Regional Cores quota. " +
		"Additional details - Deployment Model: Resource Manager, Location: " + *v.Location + ", Current Limit: " + text(limit) +
		", Current Usage: " + text(used) + ", Additional Required: " + text(needed) + ", (Minimum) New Limit Required: " + text(used+needed) + "."}
}

// startMachine stores a machine and its disk, and attaches its interface.
func (c *cloud) startMachine(group, name string, v armcompute.VirtualMachine) *armcompute.VirtualMachine {
	c.serial++
	p, id := v.Properties, idOf(group, c.vms.kind, name)
	v.ID, v.Name, v.Type = &id, &name, to.Ptr(c.vms.kind)
	p.ProvisioningState, p.TimeCreated = to.Ptr("Creating"), to.Ptr(time.Now())
	m := &machine{group: group, name: name, number: c.serial, power: "creating"}
	if p.OSProfile.CustomData != nil {
		m.customData, p.OSProfile.CustomData = *p.OSProfile.CustomData, nil // The API never returns it.
	}
	if v.Identity != nil {
		for identity := range v.Identity.UserAssignedIdentities {
			m.identities = append(m.identities, identity)
		}
	}
	disk := p.StorageProfile.OSDisk
	if disk.Name == nil {
		disk.Name = to.Ptr(name + "_OsDisk_1_" + strconv.Itoa(c.serial))
	}
	diskID := idOf(group, c.disks.kind, *disk.Name)
	disk.ManagedDisk = &armcompute.ManagedDiskParameters{ID: &diskID}
	c.disks.put(group, *disk.Name, armcompute.Disk{ID: &diskID, Name: disk.Name, Location: v.Location, ManagedBy: &id, Properties: &armcompute.DiskProperties{}})
	nic := c.nics.byID(*p.NetworkProfile.NetworkInterfaces[0].ID)
	nic.Properties.VirtualMachine = &armnetwork.SubResource{ID: &id}
	ip := nic.Properties.IPConfigurations[0].Properties
	m.private, m.address = *ip.PrivateIPAddress, *ip.PrivateIPAddress
	if ip.PublicIPAddress != nil {
		m.address = *c.ips.byID(*ip.PublicIPAddress.ID).Properties.IPAddress
	}
	c.machines[keyOf(group, name)] = m
	return c.vms.put(group, name, v)
}

// allocate lets a machine run once its hardware is there, unless a fault says that it never is.
func (c *cloud) allocate(group, name string, fault *apiError) {
	m := c.machines[keyOf(group, name)]
	if m == nil || m.power != "creating" {
		return
	}
	if fault != nil {
		m.power, m.failure = "", fault
		return
	}
	m.power = "running"
	c.notify()
}

// refresh updates the provisioning state of a machine that is shown.
func (c *cloud) refresh(v *armcompute.VirtualMachine, group, name string) {
	m := c.machines[keyOf(group, name)]
	if m == nil {
		return
	}
	switch {
	case m.failure != nil:
		v.Properties.ProvisioningState = to.Ptr("Failed")
	case m.power == "creating" || time.Since(*v.Properties.TimeCreated) < time.Duration(c.settings.CreateMs)*time.Millisecond:
		v.Properties.ProvisioningState = to.Ptr("Creating")
	default:
		v.Properties.ProvisioningState = to.Ptr("Succeeded")
	}
}

func (c *cloud) instanceView(group, name string) *armcompute.VirtualMachineInstanceView {
	m, view := c.machines[keyOf(group, name)], &armcompute.VirtualMachineInstanceView{}
	if m == nil {
		return view
	}
	state := &armcompute.InstanceViewStatus{Code: to.Ptr("ProvisioningState/succeeded"), Time: to.Ptr(time.Now())}
	if m.failure != nil {
		state.Code, state.Message = to.Ptr("ProvisioningState/failed/"+m.failure.Code), &m.failure.Message
	} else if m.power == "creating" {
		state.Code = to.Ptr("ProvisioningState/creating")
	}
	view.Statuses = []*armcompute.InstanceViewStatus{state}
	if m.power != "" && m.power != "creating" {
		view.Statuses = append(view.Statuses, &armcompute.InstanceViewStatus{Code: to.Ptr("PowerState/" + m.power)})
	}
	return view
}

// deleteMachine removes a machine, and what its delete options name.
func (c *cloud) deleteMachine(group, name string) {
	v := c.vms.get(group, name)
	if v == nil {
		return
	}
	for _, each := range v.Properties.NetworkProfile.NetworkInterfaces {
		nic := c.nics.byID(*each.ID)
		if nic == nil {
			continue
		}
		nic.Properties.VirtualMachine = nil
		if each.Properties != nil && each.Properties.DeleteOption != nil && *each.Properties.DeleteOption == armcompute.DeleteOptionsDelete {
			c.deleteInterface(nic)
		}
	}
	disk := v.Properties.StorageProfile.OSDisk
	if stored := c.disks.get(group, *disk.Name); stored != nil {
		stored.ManagedBy = nil
	}
	if disk.DeleteOption != nil && *disk.DeleteOption == armcompute.DiskDeleteOptionTypesDelete {
		c.disks.remove(group, *disk.Name)
	}
	c.vms.remove(group, name)
	delete(c.machines, keyOf(group, name))
	c.notify()
}

func (c *cloud) deleteInterface(nic *armnetwork.Interface) {
	c.releaseAddresses(nic)
	for _, each := range nic.Properties.IPConfigurations {
		if public := each.Properties.PublicIPAddress; public != nil {
			if ip := c.ips.byID(*public.ID); ip != nil && ip.Properties.DeleteOption != nil && *ip.Properties.DeleteOption == armnetwork.DeleteOptionsDelete {
				c.ips.removeID(*public.ID)
			}
		}
	}
	c.nics.removeID(*nic.ID)
}

func (c *cloud) serveDisks(s *fake.DisksServer) {
	s.BeginDelete = func(_ context.Context, group, name string, _ *armcompute.DisksClientBeginDeleteOptions) (p azfake.PollerResponder[armcompute.DisksClientDeleteResponse], e azfake.ErrorResponder) {
		if v := c.disks.get(group, name); v != nil && v.ManagedBy != nil {
			c.refuse(&e, http.StatusConflict, "OperationNotAllowed", "Disk %s is attached to VM %s.", name, *v.ManagedBy)
			return
		}
		return deleted[armcompute.DisksClientDeleteResponse](c.disks, group, name), e
	}
	s.NewListByResourceGroupPager = func(group string, _ *armcompute.DisksClientListByResourceGroupOptions) (p azfake.PagerResponder[armcompute.DisksClientListByResourceGroupResponse]) {
		p.AddPage(http.StatusOK, armcompute.DisksClientListByResourceGroupResponse{DiskList: armcompute.DiskList{Value: c.disks.listed(group, c.lag())}}, nil)
		return
	}
}

func (c *cloud) serveUsage(s *fake.UsageServer) {
	s.NewListPager = func(location string, _ *armcompute.UsageClientListOptions) (p azfake.PagerResponder[armcompute.UsageClientListResponse]) {
		limit, limited := c.settings.Cores[location]
		if !limited {
			limit = 1000
		}
		usage := func(name string, used, limit int64) *armcompute.Usage {
			return &armcompute.Usage{CurrentValue: to.Ptr(int32(used)), Limit: to.Ptr(limit), Unit: to.Ptr("Count"), Name: &armcompute.UsageName{Value: &name}}
		}
		all := []*armcompute.Usage{
			usage("cores", c.usedCores(location), limit), usage("virtualMachines", 0, 25000),
			usage("standardDv5Family", c.usedCores(location), max(limit, 350)), usage("lowPriorityCores", 0, max(limit, 100)),
		}
		p.AddPage(http.StatusOK, armcompute.UsageClientListResponse{ListUsagesResult: armcompute.ListUsagesResult{Value: all}}, nil)
		return
	}
}

func (c *cloud) serveSizes(s *fake.ResourceSKUsServer) {
	s.NewListPager = func(options *armcompute.ResourceSKUsClientListOptions) (p azfake.PagerResponder[armcompute.ResourceSKUsClientListResponse]) {
		location := ""
		if options != nil && options.Filter != nil {
			location = strings.Trim(strings.TrimPrefix(*options.Filter, "location eq "), "'")
		}
		all := []*armcompute.ResourceSKU{}
		for _, size := range []string{"Standard_D8_v5", "Standard_D16_v5", "Standard_D32_v5"} {
			sku := &armcompute.ResourceSKU{
				Name: to.Ptr(size), ResourceType: to.Ptr("virtualMachines"), Family: to.Ptr(familyOf(size)), Locations: []*string{&location},
				LocationInfo: []*armcompute.ResourceSKULocationInfo{{Location: &location, Zones: []*string{to.Ptr("1"), to.Ptr("2"), to.Ptr("3")}}},
			}
			if c.settings.Unavailable[size] {
				sku.Restrictions = []*armcompute.ResourceSKURestrictions{{
					Type: to.Ptr(armcompute.ResourceSKURestrictionsTypeLocation), Values: []*string{&location},
					ReasonCode: to.Ptr(armcompute.ResourceSKURestrictionsReasonCodeNotAvailableForSubscription),
				}}
			}
			all = append(all, sku)
		}
		p.AddPage(http.StatusOK, armcompute.ResourceSKUsClientListResponse{ResourceSKUsResult: armcompute.ResourceSKUsResult{Value: all}}, nil)
		return
	}
}
