package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v6"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v6/fake"
)

func (c *cloud) network() *fake.ServerFactory {
	s := &fake.ServerFactory{}
	c.serveNetworks(&s.VirtualNetworksServer)
	c.serveGroups(&s.SecurityGroupsServer)
	c.serveAddresses(&s.PublicIPAddressesServer)
	c.serveInterfaces(&s.InterfacesServer)
	return s
}

func (c *cloud) notFound(e *azfake.ErrorResponder, kind, name, group string) {
	c.refuse(e, http.StatusNotFound, "ResourceNotFound",
		"The Resource '%s/%s' under resource group '%s' was not found.", kind, name, group)
}

func (c *cloud) serveNetworks(s *fake.VirtualNetworksServer) {
	type made = armnetwork.VirtualNetworksClientCreateOrUpdateResponse
	s.BeginCreateOrUpdate = func(_ context.Context, group, name string, v armnetwork.VirtualNetwork, _ *armnetwork.VirtualNetworksClientBeginCreateOrUpdateOptions) (p azfake.PollerResponder[made], e azfake.ErrorResponder) {
		if v.Location == nil || v.Properties == nil || v.Properties.AddressSpace == nil {
			c.refuse(&e, http.StatusBadRequest, "InvalidRequestFormat", "Cannot parse the request.")
			return
		}
		v.ID, v.Name = to.Ptr(idOf(group, c.nets.kind, name)), &name
		v.Properties.ProvisioningState = to.Ptr(armnetwork.ProvisioningStateSucceeded)
		for _, subnet := range v.Properties.Subnets {
			subnet.ID = to.Ptr(*v.ID + "/subnets/" + *subnet.Name)
		}
		return done(made{VirtualNetwork: *c.nets.put(group, name, v)}, http.StatusOK), e
	}
	s.Get = func(_ context.Context, group, name string, _ *armnetwork.VirtualNetworksClientGetOptions) (r azfake.Responder[armnetwork.VirtualNetworksClientGetResponse], e azfake.ErrorResponder) {
		if v := c.nets.get(group, name); v != nil {
			return answer(armnetwork.VirtualNetworksClientGetResponse{VirtualNetwork: *v}), e
		}
		c.notFound(&e, c.nets.kind, name, group)
		return
	}
	s.BeginDelete = func(_ context.Context, group, name string, _ *armnetwork.VirtualNetworksClientBeginDeleteOptions) (p azfake.PollerResponder[armnetwork.VirtualNetworksClientDeleteResponse], e azfake.ErrorResponder) {
		id := idOf(group, c.nets.kind, name)
		for _, nic := range c.nics.living() {
			if strings.HasPrefix(strings.ToLower(subnetOf(nic)), strings.ToLower(id)+"/") {
				c.refuse(&e, http.StatusBadRequest, "InUseSubnetCannotBeDeleted", "Subnet %s is in use by %s and cannot be deleted.", subnetOf(nic), *nic.ID)
				return
			}
		}
		return deleted[armnetwork.VirtualNetworksClientDeleteResponse](c.nets, group, name), e
	}
	s.NewListPager = func(group string, _ *armnetwork.VirtualNetworksClientListOptions) (p azfake.PagerResponder[armnetwork.VirtualNetworksClientListResponse]) {
		p.AddPage(http.StatusOK, armnetwork.VirtualNetworksClientListResponse{VirtualNetworkListResult: armnetwork.VirtualNetworkListResult{Value: c.nets.listed(group, c.lag())}}, nil)
		return
	}
}

// deleted removes a resource: 204 without a body if there is none.
func deleted[R, T any](t *table[T], group, name string) azfake.PollerResponder[R] {
	var nothing R
	if t.get(group, name) == nil {
		return done(nothing, http.StatusNoContent)
	}
	t.remove(group, name)
	return done(nothing, http.StatusOK)
}

func (c *cloud) serveGroups(s *fake.SecurityGroupsServer) {
	type made = armnetwork.SecurityGroupsClientCreateOrUpdateResponse
	s.BeginCreateOrUpdate = func(_ context.Context, group, name string, v armnetwork.SecurityGroup, _ *armnetwork.SecurityGroupsClientBeginCreateOrUpdateOptions) (p azfake.PollerResponder[made], e azfake.ErrorResponder) {
		if v.Location == nil {
			c.refuse(&e, http.StatusBadRequest, "LocationRequired", "The location property is required for this definition.")
			return
		}
		if wrong := wrongRule(v.Properties); wrong != "" {
			c.refuse(&e, http.StatusBadRequest, "SecurityRuleParameterInvalid", "Security rule is invalid: %s", wrong)
			return
		}
		v.ID, v.Name = to.Ptr(idOf(group, c.groups.kind, name)), &name
		return done(made{SecurityGroup: *c.groups.put(group, name, v)}, http.StatusOK), e
	}
	s.Get = func(_ context.Context, group, name string, _ *armnetwork.SecurityGroupsClientGetOptions) (r azfake.Responder[armnetwork.SecurityGroupsClientGetResponse], e azfake.ErrorResponder) {
		if v := c.groups.get(group, name); v != nil {
			return answer(armnetwork.SecurityGroupsClientGetResponse{SecurityGroup: *v}), e
		}
		c.notFound(&e, c.groups.kind, name, group)
		return
	}
	s.BeginDelete = func(_ context.Context, group, name string, _ *armnetwork.SecurityGroupsClientBeginDeleteOptions) (p azfake.PollerResponder[armnetwork.SecurityGroupsClientDeleteResponse], e azfake.ErrorResponder) {
		id := idOf(group, c.groups.kind, name)
		for _, nic := range c.nics.living() {
			if sg := nic.Properties.NetworkSecurityGroup; sg != nil && strings.EqualFold(*sg.ID, id) {
				c.refuse(&e, http.StatusBadRequest, "InUseNetworkSecurityGroupCannotBeDeleted", "Network security group %s cannot be deleted because it is in use by the following resources: %s.", id, *nic.ID)
				return
			}
		}
		return deleted[armnetwork.SecurityGroupsClientDeleteResponse](c.groups, group, name), e
	}
	s.NewListPager = func(group string, _ *armnetwork.SecurityGroupsClientListOptions) (p azfake.PagerResponder[armnetwork.SecurityGroupsClientListResponse]) {
		p.AddPage(http.StatusOK, armnetwork.SecurityGroupsClientListResponse{SecurityGroupListResult: armnetwork.SecurityGroupListResult{Value: c.groups.listed(group, c.lag())}}, nil)
		return
	}
}

// wrongRule names the first rule that Azure would refuse.
func wrongRule(p *armnetwork.SecurityGroupPropertiesFormat) string {
	if p == nil {
		return ""
	}
	seen := map[int32]bool{}
	for _, rule := range p.SecurityRules {
		r := rule.Properties
		switch {
		case rule.Name == nil || r == nil || r.Priority == nil || r.Direction == nil || r.Access == nil || r.Protocol == nil:
			return "name, priority, direction, access and protocol are required"
		case *r.Priority < 100 || *r.Priority > 4096 || seen[*r.Priority]:
			return *rule.Name + ": priority"
		case (r.SourceAddressPrefix == nil) == (len(r.SourceAddressPrefixes) == 0):
			return *rule.Name + ": source address"
		case r.DestinationAddressPrefix == nil || r.SourcePortRange == nil || r.DestinationPortRange == nil:
			return *rule.Name + ": ports and destination"
		}
		seen[*r.Priority] = true
	}
	return ""
}

func (c *cloud) serveAddresses(s *fake.PublicIPAddressesServer) {
	type made = armnetwork.PublicIPAddressesClientCreateOrUpdateResponse
	s.BeginCreateOrUpdate = func(_ context.Context, group, name string, v armnetwork.PublicIPAddress, _ *armnetwork.PublicIPAddressesClientBeginCreateOrUpdateOptions) (p azfake.PollerResponder[made], e azfake.ErrorResponder) {
		if v.Location == nil || v.SKU == nil || v.SKU.Name == nil || *v.SKU.Name != armnetwork.PublicIPAddressSKUNameStandard ||
			v.Properties == nil || v.Properties.PublicIPAllocationMethod == nil || *v.Properties.PublicIPAllocationMethod != armnetwork.IPAllocationMethodStatic {
			c.refuse(&e, http.StatusBadRequest, "InvalidRequestFormat", "Public addresses of the SKU Standard are static.")
			return
		}
		if was := c.ips.get(group, name); was != nil {
			if zoneOf(was.Zones) != zoneOf(v.Zones) {
				c.refuse(&e, http.StatusBadRequest, "ResourceAvailabilityZonesCannotBeModified", "The zones of %s cannot be changed.", *was.ID)
				return
			}
			v.Properties.IPAddress, v.Properties.IPConfiguration = was.Properties.IPAddress, was.Properties.IPConfiguration
		} else {
			count := 0
			for _, other := range c.ips.living() {
				if strings.EqualFold(*other.Location, *v.Location) {
					count++
				}
			}
			if count >= c.settings.PublicIPs {
				c.refuse(&e, http.StatusBadRequest, "PublicIPCountLimitReached", "Cannot create more than %d public IP addresses for this subscription in this region.", c.settings.PublicIPs)
				return
			}
			v.Properties.IPAddress = to.Ptr(c.nextAddress())
		}
		v.ID, v.Name = to.Ptr(idOf(group, c.ips.kind, name)), &name
		return done(made{PublicIPAddress: *c.ips.put(group, name, v)}, http.StatusOK), e
	}
	s.Get = func(_ context.Context, group, name string, _ *armnetwork.PublicIPAddressesClientGetOptions) (r azfake.Responder[armnetwork.PublicIPAddressesClientGetResponse], e azfake.ErrorResponder) {
		if v := c.ips.get(group, name); v != nil {
			return answer(armnetwork.PublicIPAddressesClientGetResponse{PublicIPAddress: *v}), e
		}
		c.notFound(&e, c.ips.kind, name, group)
		return
	}
	s.BeginDelete = func(_ context.Context, group, name string, _ *armnetwork.PublicIPAddressesClientBeginDeleteOptions) (p azfake.PollerResponder[armnetwork.PublicIPAddressesClientDeleteResponse], e azfake.ErrorResponder) {
		if v := c.ips.get(group, name); v != nil && v.Properties.IPConfiguration != nil {
			c.refuse(&e, http.StatusBadRequest, "PublicIPAddressCannotBeDeleted", "Public IP address %s can not be deleted since it is still allocated to resource %s.", *v.ID, *v.Properties.IPConfiguration.ID)
			return
		}
		return deleted[armnetwork.PublicIPAddressesClientDeleteResponse](c.ips, group, name), e
	}
	s.NewListPager = func(group string, _ *armnetwork.PublicIPAddressesClientListOptions) (p azfake.PagerResponder[armnetwork.PublicIPAddressesClientListResponse]) {
		p.AddPage(http.StatusOK, armnetwork.PublicIPAddressesClientListResponse{PublicIPAddressListResult: armnetwork.PublicIPAddressListResult{Value: c.ips.listed(group, c.lag())}}, nil)
		return
	}
}

// zoneOf returns the zone of a resource; "Regional" if it has none, as Azure says.
func zoneOf(zones []*string) string {
	if len(zones) == 0 {
		return "Regional"
	}
	return *zones[0]
}

// nextAddress returns an address that no machine has. Numbers below 10 belong to the host.
func (c *cloud) nextAddress() string {
	used := map[string]bool{}
	for _, ip := range c.ips.living() {
		used[*ip.Properties.IPAddress] = true
	}
	for _, m := range c.machines {
		used[m.address] = true
	}
	for {
		c.serial++
		address := fmt.Sprintf("%s.%d", c.settings.PublicNet, 10+c.serial%240)
		if !used[address] {
			return address
		}
	}
}

func subnetOf(nic *armnetwork.Interface) string {
	return *nic.Properties.IPConfigurations[0].Properties.Subnet.ID
}

func (c *cloud) serveInterfaces(s *fake.InterfacesServer) {
	type made = armnetwork.InterfacesClientCreateOrUpdateResponse
	s.BeginCreateOrUpdate = func(_ context.Context, group, name string, v armnetwork.Interface, _ *armnetwork.InterfacesClientBeginCreateOrUpdateOptions) (p azfake.PollerResponder[made], e azfake.ErrorResponder) {
		if wrong := c.wrongInterface(&v); wrong != nil {
			c.refuse(&e, wrong.Status, wrong.Code, "%s", wrong.Message)
			return
		}
		id := idOf(group, c.nics.kind, name)
		settings := v.Properties.IPConfigurations[0]
		settings.ID = to.Ptr(id + "/ipConfigurations/" + *settings.Name)
		if was := c.nics.get(group, name); was != nil {
			v.Properties.VirtualMachine = was.Properties.VirtualMachine
			settings.Properties.PrivateIPAddress = was.Properties.IPConfigurations[0].Properties.PrivateIPAddress
		} else if settings.Properties.PublicIPAddress == nil {
			settings.Properties.PrivateIPAddress = to.Ptr(c.nextAddress())
		} else {
			c.serial++
			settings.Properties.PrivateIPAddress = to.Ptr(fmt.Sprintf("10.97.%d.%d", c.serial/250, 4+c.serial%250))
		}
		if public := settings.Properties.PublicIPAddress; public != nil {
			ip := c.ips.byID(*public.ID)
			ip.Properties.IPConfiguration = &armnetwork.IPConfiguration{ID: settings.ID}
			if public.Properties != nil && public.Properties.DeleteOption != nil {
				ip.Properties.DeleteOption = public.Properties.DeleteOption
			}
		}
		v.ID, v.Name = &id, &name
		return done(made{Interface: *c.nics.put(group, name, v)}, http.StatusOK), e
	}
	s.Get = func(_ context.Context, group, name string, _ *armnetwork.InterfacesClientGetOptions) (r azfake.Responder[armnetwork.InterfacesClientGetResponse], e azfake.ErrorResponder) {
		if v := c.nics.get(group, name); v != nil {
			return answer(armnetwork.InterfacesClientGetResponse{Interface: *v}), e
		}
		c.notFound(&e, c.nics.kind, name, group)
		return
	}
	s.BeginDelete = func(_ context.Context, group, name string, _ *armnetwork.InterfacesClientBeginDeleteOptions) (p azfake.PollerResponder[armnetwork.InterfacesClientDeleteResponse], e azfake.ErrorResponder) {
		if v := c.nics.get(group, name); v != nil {
			if v.Properties.VirtualMachine != nil {
				c.refuse(&e, http.StatusBadRequest, "NicInUse", "Network Interface %s is used by existing resource %s. In order to delete the network interface, it must be dissociated from the resource.", *v.ID, *v.Properties.VirtualMachine.ID)
				return
			}
			c.releaseAddresses(v)
		}
		return deleted[armnetwork.InterfacesClientDeleteResponse](c.nics, group, name), e
	}
	s.NewListPager = func(group string, _ *armnetwork.InterfacesClientListOptions) (p azfake.PagerResponder[armnetwork.InterfacesClientListResponse]) {
		p.AddPage(http.StatusOK, armnetwork.InterfacesClientListResponse{InterfaceListResult: armnetwork.InterfaceListResult{Value: c.nics.listed(group, c.lag())}}, nil)
		return
	}
}

func (c *cloud) wrongInterface(v *armnetwork.Interface) *apiError {
	if v.Location == nil || v.Properties == nil || len(v.Properties.IPConfigurations) != 1 {
		return &apiError{http.StatusBadRequest, "InvalidRequestFormat", "Cannot parse the request."}
	}
	p := v.Properties.IPConfigurations[0].Properties
	if p == nil || p.Subnet == nil || p.Subnet.ID == nil {
		return &apiError{http.StatusBadRequest, "InvalidRequestFormat", "A subnet is required."}
	}
	net := c.nets.byID(strings.Split(*p.Subnet.ID, "/subnets/")[0])
	if net == nil || !strings.EqualFold(*net.Location, *v.Location) {
		return &apiError{http.StatusBadRequest, "InvalidResourceReference", "Resource " + *p.Subnet.ID + " was not found in " + *v.Location + "."}
	}
	if sg := v.Properties.NetworkSecurityGroup; sg != nil && c.groups.byID(*sg.ID) == nil {
		return &apiError{http.StatusBadRequest, "InvalidResourceReference", "Resource " + *sg.ID + " was not found."}
	}
	if p.PublicIPAddress != nil {
		ip := c.ips.byID(*p.PublicIPAddress.ID)
		if ip == nil {
			return &apiError{http.StatusBadRequest, "InvalidResourceReference", "Resource " + *p.PublicIPAddress.ID + " was not found."}
		}
	}
	return nil
}

// releaseAddresses detaches the public addresses of an interface that goes, or removes those that go with it.
func (c *cloud) releaseAddresses(nic *armnetwork.Interface) {
	for _, each := range nic.Properties.IPConfigurations {
		if each.Properties.PublicIPAddress == nil {
			continue
		}
		if ip := c.ips.byID(*each.Properties.PublicIPAddress.ID); ip != nil {
			ip.Properties.IPConfiguration = nil
		}
	}
}
