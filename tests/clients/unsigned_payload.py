"""Reads one object with a signature that leaves the payload out, and prints its length.

    unsigned_payload.py BUCKET KEY
"""

import os
import sys

import boto3
from botocore.config import Config

s3 = {"addressing_style": os.environ["AWS_ADDRESSING_STYLE"], "payload_signing_enabled": False}
client = boto3.client("s3", config=Config(s3=s3))


def unsigned(params, **_):
    params["context"]["payload_signing_enabled"] = False


client.meta.events.register("before-call.s3", unsigned)
print(len(client.get_object(Bucket=sys.argv[1], Key=sys.argv[2])["Body"].read()))
