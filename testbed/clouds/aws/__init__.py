"""Amazon EC2 as moto emulates it, with instances that really boot.

- `moto_ec2`: the server, run by moto's own interpreter, with faults, quotas and a door for the testbed
- `metadata`: the metadata service of the instances
- `cloud`: starts the server, boots its instances, and injects faults
"""

from testbed.clouds.aws.cloud import KEYS, AwsCloud, Boots, aws_api, aws_cloud

__all__ = ["KEYS", "AwsCloud", "Boots", "aws_api", "aws_cloud"]
