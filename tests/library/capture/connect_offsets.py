"""A file with offsets, as Kafka Connect 4.3 itself has written it."""

from base64 import b64decode

# Connect streams customers-1. The snapshot of orders-1 goes on, that of orders-2 has ended, and kinds-1 was reset.
WHOLE = b64decode(
    "rO0ABXNyABFqYXZhLnV0aWwuSGFzaE1hcAUH2sHDFmDRAwACRgAKbG9hZEZhY3RvckkACXRocmVzaG9sZHhwP0AAAAAAAAx3CAAAABAAAAAEdXIA"
    "AltCrPMX+AYIVOACAAB4cAAAAB5bImtpbmRzIix7InNlcnZlciI6ImtpbmRzLTEifV1wdXEAfgACAAAAIFsib3JkZXJzIix7InNlcnZlciI6Im9y"
    "ZGVycy0xIn1ddXEAfgACAAAAVnsic25hcHNob3QiOiJJTklUSUFMIiwibGFzdF9zbmFwc2hvdF9yZWNvcmQiOmZhbHNlLCJzbmFwc2hvdF9jb21w"
    "bGV0ZWQiOmZhbHNlLCJsc24iOjV9dXEAfgACAAAAJlsiY3VzdG9tZXJzIix7InNlcnZlciI6ImN1c3RvbWVycy0xIn1ddXEAfgACAAAAGHsibHNu"
    "Ijo1LCJsc25fY29tbWl0Ijo1fXVxAH4AAgAAACBbIm9yZGVycyIseyJzZXJ2ZXIiOiJvcmRlcnMtMiJ9XXVxAH4AAgAAAFR7InNuYXBzaG90Ijoi"
    "SU5JVElBTCIsImxhc3Rfc25hcHNob3RfcmVjb3JkIjp0cnVlLCJzbmFwc2hvdF9jb21wbGV0ZWQiOnRydWUsImxzbiI6NX14"
)
