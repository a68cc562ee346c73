"""Parts of the provider `aws`: calls and their refusals, security groups, instances, the smallest policy."""
