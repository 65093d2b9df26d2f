"""Downloads a whole bucket with boto3 as it comes: default checksums, eight threads.

    read_all.py BUCKET FOLDER

Prints `OBJECTS BYTES`. The endpoint, the keys and the addressing style come from the environment.
"""

import concurrent.futures
import os
import pathlib
import sys

import boto3
from botocore.config import Config

bucket, folder = sys.argv[1], pathlib.Path(sys.argv[2])
style = os.environ["AWS_ADDRESSING_STYLE"]
client = boto3.client("s3", config=Config(s3={"addressing_style": style}, max_pool_connections=8))


def read(key):
    path = folder / key
    path.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    with open(path, "wb") as file:
        for piece in client.get_object(Bucket=bucket, Key=key)["Body"].iter_chunks(1 << 20):
            file.write(piece)
            size += len(piece)
    return size


pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    sizes = list(pool.map(read, keys))
print(len(sizes), sum(sizes))
