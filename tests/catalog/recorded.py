"""Answers in the format of the real price APIs: their field names, their units, and items that must be ignored."""

from __future__ import annotations

import csv
import io
from typing import Any

from tests.catalog.price_server import Answer, PriceServer

EC2_COLUMNS = """\
SKU,OfferTermCode,RateCode,TermType,PriceDescription,EffectiveDate,StartingRange,EndingRange,Unit,PricePerUnit,Currency,\
RelatedTo,LeaseContractLength,PurchaseOption,OfferingClass,Product Family,serviceCode,Location,Location Type,\
Instance Type,\
Current Generation,Instance Family,vCPU,Physical Processor,Clock Speed,Memory,Storage,Network Performance,\
Processor Architecture,Tenancy,Operating System,License Model,usageType,operation,CapacityStatus,MarketOption,\
Pre Installed S/W,Region Code,serviceName"""


def ec2_row(name: str, usd: str, **changes: str) -> list[str]:
    """Return one price of one instance type; by default on demand, Linux, shared."""
    fields = {
        "SKU": "2223B6PCG6QAUYY6",
        "OfferTermCode": "JRTCKXETXF",
        "TermType": "OnDemand",
        "PriceDescription": f"${usd} per On Demand Linux {name} Instance Hour",
        "Unit": "Hrs",
        "PricePerUnit": usd,
        "Currency": "USD",
        "Product Family": "Compute Instance",
        "Instance Type": name,
        "Tenancy": "Shared",
        "Operating System": "Linux",
        "CapacityStatus": "Used",
        "MarketOption": "OnDemand",
        "Pre Installed S/W": "NA",
        "Region Code": "us-east-1",
        **changes,
    }
    return [fields.get(column, "") for column in EC2_COLUMNS.split(",")]


def ec2_list(*rows: list[str]) -> str:
    """Return a region's price list as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows(
        [
            ["FormatVersion", "v1.0"],
            ["Disclaimer", "This pricing list is for informational purposes only. …"],
            ["Publication Date", "2026-11-18T22:53:08Z"],
            ["Version", "20261118225308"],
            ["OfferCode", "AmazonEC2"],
            EC2_COLUMNS.split(","),
            *rows,
        ]
    )
    return text.getvalue()


def transfer_product(sku: str, usage: str, kind: str, to_code: str, **changes: str) -> dict[str, Any]:
    """Return a product of AWSDataTransfer."""
    return {
        "sku": sku,
        "productFamily": "Data Transfer",
        "attributes": {
            "servicecode": "AWSDataTransfer",
            "transferType": kind,
            "fromLocation": "US East (N. Virginia)",
            "fromLocationType": "AWS Region",
            "toLocation": "External" if not to_code else "somewhere",
            "toLocationType": "Other" if not to_code else "AWS Region",
            "usagetype": usage,
            "operation": "",
            "fromRegionCode": "us-east-1",
            "toRegionCode": to_code,
            "servicename": "AWS Data Transfer",
            **changes,
        },
    }


def transfer_term(sku: str, *tiers: tuple[str, str, str]) -> dict[str, Any]:
    """Return a product's price, in tiers of begin, end, USD."""
    return {
        f"{sku}.JRTCKXETXF": {
            "offerTermCode": "JRTCKXETXF",
            "sku": sku,
            "effectiveDate": "2026-11-01T00:00:00Z",
            "priceDimensions": {
                f"{sku}.JRTCKXETXF.{number}": {
                    "rateCode": f"{sku}.JRTCKXETXF.{number}",
                    "description": f"${usd} per GB",
                    "beginRange": begin,
                    "endRange": end,
                    "unit": "GB",
                    "pricePerUnit": {"USD": usd},
                    "appliesTo": [],
                }
                for number, (begin, end, usd) in enumerate(tiers)
            },
            "termAttributes": {},
        }
    }


def transfer_list() -> dict[str, Any]:
    """Return `AWSDataTransfer` of us-east-1, with similar products that are not plain egress."""
    kinds = {
        "OHIO": transfer_product("OHIO", "USE1-USE2-AWS-Out-Bytes", "InterRegion Outbound", "us-east-2"),
        "TOKYO": transfer_product("TOKYO", "USE1-APN1-AWS-Out-Bytes", "InterRegion Outbound", "ap-northeast-1"),
        "NET": transfer_product("NET", "DataTransfer-Out-Bytes", "AWS Outbound", ""),
        "GLOBAL": transfer_product(
            "GLOBAL", "Global-DataTransfer-Out-Bytes", "AWS Outbound", "", fromRegionCode="", fromLocation="Global"
        ),
        "FAST": transfer_product(
            "FAST", "USE1-USE2-AWS-Out-Bytes", "InterRegion Outbound", "us-east-2", operation="CopyAccelerated"
        ),
        "MRAP": transfer_product("MRAP", "USE1-MRAP-Out-Bytes", "InterRegion Outbound", ""),
        "ODD": transfer_product("ODD", "USE1-DEN1-AWS-Out-Bytes", "InterRegion Outbound", "us-west-2-den-1"),
        "IN": transfer_product("IN", "DataTransfer-In-Bytes", "AWS Inbound", ""),
    }
    flat = {"OHIO": "0.0100000000", "TOKYO": "0.0200000000", "FAST": "0.04", "MRAP": "0.0033", "ODD": "0.02", "IN": "0"}
    terms = {sku: transfer_term(sku, ("0", "Inf", usd)) for sku, usd in flat.items()}
    terms["NET"] = transfer_term(
        "NET",
        ("51200", "153600", "0.07"),
        ("0", "10240", "0.091"),
        ("10240", "51200", "0.085"),
        ("153600", "Inf", "0.05"),
    )
    terms["GLOBAL"] = transfer_term("GLOBAL", ("0", "100", "0.0000000000"), ("100", "Inf", "0"))
    return {
        "formatVersion": "v1.0",
        "disclaimer": "…",
        "offerCode": "AWSDataTransfer",
        "version": "20261117193341",
        "publicationDate": "2026-11-17T19:33:41Z",
        "products": kinds,
        "terms": {"OnDemand": terms},
    }


def region_index(offer: str, *regions: str) -> dict[str, Any]:
    """Return the addresses of the regions' lists."""
    return {
        "formatVersion": "v1.0",
        "disclaimer": "…",
        "publicationDate": "2026-11-18T22:53:08Z",
        "regions": {
            region: {
                "regionCode": region,
                "currentVersionUrl": f"/offers/v1.0/aws/{offer}/20261118225308/{region}/index.json",
            }
            for region in regions
        },
    }


def serve_aws(server: PriceServer, machines: Answer | list[Answer] | None = None) -> None:
    """Serve us-east-1 of both offers."""
    base = "/offers/v1.0/aws"
    rows = [
        ec2_row("m5.8xlarge", "0.968", TermType="Reserved"),
        ec2_row("m5.8xlarge", "3.008", **{"Operating System": "Windows"}),
        ec2_row("m5.8xlarge", "0.0", CapacityStatus="AllocatedCapacityReservation"),
        ec2_row("m5.8xlarge", "1.689", Tenancy="Dedicated"),
        ec2_row("m5.8xlarge", "5.4", **{"Pre Installed S/W": "SQL Web"}),
        ec2_row("m5.8xlarge", "1.5360000000"),
        ec2_row("x1e.xlarge", "0.834"),
        ec2_row("c5n.9xlarge", "1.9440000000"),
    ]
    for offer in ("AWSDataTransfer", "AmazonEC2"):
        server.routes[f"{base}/{offer}/current/region_index.json"] = Answer.of(region_index(offer, "us-east-1"))
    server.routes[f"{base}/AWSDataTransfer/20261118225308/us-east-1/index.json"] = Answer.of(transfer_list())
    server.routes[f"{base}/AmazonEC2/20261118225308/us-east-1/index.csv"] = machines or Answer.packed(ec2_list(*rows))


def azure_item(**changes: Any) -> dict[str, Any]:
    """Return one item of the Retail Prices API, by default a Linux machine on demand."""
    item = {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": 1.536,
        "unitPrice": 1.536,
        "armRegionName": "eastus",
        "location": "US East",
        "effectiveStartDate": "2021-11-01T00:00:00Z",
        "meterId": "4e763e64-5ae4-5ed3-8892-902bb82ca7d3",
        "meterName": "D32 v5",
        "productId": "DZH318Z08NRP",
        "skuId": "DZH318Z08NRP/000F",
        "productName": "Virtual Machines Dv5 Series",
        "skuName": "D32 v5",
        "serviceName": "Virtual Machines",
        "serviceId": "DZH313Z7MMC8",
        "serviceFamily": "Compute",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": "Standard_D32_v5",
    }
    return {**item, **changes}


def bandwidth_item(usd: float, tier: float = 0.0, **changes: Any) -> dict[str, Any]:
    """Return one tier of egress, by default over Microsoft's network."""
    defaults = {
        "productName": "Rtn Preference: MGN",
        "skuName": "Standard",
        "meterName": "Standard Data Transfer Out",
        "serviceName": "Bandwidth",
        "serviceFamily": "Networking",
        "unitOfMeasure": "1 GB",
        "armSkuName": "",
        "isPrimaryMeterRegion": False,
    }
    return azure_item(retailPrice=usd, unitPrice=usd, tierMinimumUnits=tier, **{**defaults, **changes})


def azure_machines() -> list[dict[str, Any]]:
    """Return items of Standard_D32_v5 in eastus."""
    return [
        azure_item(),
        azure_item(skuName="D32 v5 Spot", meterName="D32 v5 Spot", retailPrice=0.1914),
        azure_item(skuName="D32 v5 Low Priority", meterName="D32 v5 Low Priority", retailPrice=0.3072),
        azure_item(productName="Virtual Machines Dv5 Series Windows", retailPrice=3.008),
        azure_item(retailPrice=1.7, effectiveStartDate="2020-01-01T00:00:00Z"),
        azure_item(armRegionName="usgovvirginia", retailPrice=1.9),
    ]


def azure_bandwidth() -> list[dict[str, Any]]:
    """Return items of eastus and southeastasia."""
    ladder = [(0.0, 0.0), (100.0, 0.087), (10335.0, 0.083), (51295.0, 0.07), (153695.0, 0.05), (512095.0, 0.05)]
    between: dict[str, Any] = {"productName": "Bandwidth Inter-Region", "skuName": "Inter-Region"}
    asia: dict[str, Any] = {"armRegionName": "southeastasia"}
    return [
        *(bandwidth_item(usd, tier) for tier, usd in ladder),
        bandwidth_item(0.08, productName="Bandwidth - Routing Preference: Internet"),
        bandwidth_item(0.0, meterName="Standard Data Transfer In"),
        bandwidth_item(0.02, meterName="Intra Continent Data Transfer Out", **between),
        bandwidth_item(0.05, meterName="Inter Continent Data Transfer Out - NAM or EU To Any", **between),
        bandwidth_item(0.08, meterName="Inter Continent Data Transfer Out - ASIA To Any", **between, **asia),
        bandwidth_item(0.12, **asia),
    ]


def azure_page(items: list[dict[str, Any]], following: str | None = None) -> Answer:
    """Return one page."""
    return Answer.of(
        {
            "BillingCurrency": "USD",
            "CustomerEntityId": "Default",
            "CustomerEntityType": "Retail",
            "Items": items,
            "NextPageLink": following,
            "Count": len(items),
        }
    )


def gcp_sku(
    description: str, unit: str, *rates: tuple[float, int], regions: tuple[str, ...], **category: str
) -> dict[str, Any]:
    """Return one SKU. Each rate has the amount from which it applies, and the price in billionths of a dollar."""
    return {
        "name": "services/6F81-5844-456A/skus/0012-B7F2-DD14",
        "skuId": "0012-B7F2-DD14",
        "description": description,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": "Compute",
            "resourceGroup": "CPU",
            "usageType": "OnDemand",
            **category,
        },
        "serviceRegions": list(regions),
        "pricingInfo": [
            {
                "summary": "",
                "pricingExpression": {
                    "usageUnit": unit,
                    "displayQuantity": 1,
                    "tieredRates": [
                        {
                            "startUsageAmount": start,
                            "unitPrice": {"currencyCode": "USD", "units": str(nanos // 10**9), "nanos": nanos % 10**9},
                        }
                        for start, nanos in rates
                    ],
                    "usageUnitDescription": "",
                    "baseUnit": "By",
                    "baseUnitConversionFactor": 1073741824,
                },
                "currencyConversionRate": 1,
                "effectiveTime": "2026-11-20T21:32:19.471Z",
            }
        ],
        "serviceProviderName": "Google",
    }


def gcp_skus() -> list[dict[str, Any]]:
    """Return cores, memory and egress of us-east4 (Virginia), and similar SKUs that must be ignored."""
    return [*gcp_compute_skus(), *gcp_egress_skus(), gcp_sku("Licensing Fee for Debian", "h", (0, 1), **DEBIAN)]


VIRGINIA: dict[str, Any] = {"regions": ("us-east4",)}
SPOT = {**VIRGINIA, "usageType": "Preemptible"}
COMMITTED = {**VIRGINIA, "usageType": "Commit1Yr"}
BETWEEN_REGIONS = {**VIRGINIA, "resourceFamily": "Network", "resourceGroup": "InterregionEgress"}
TO_THE_INTERNET = {**VIRGINIA, "resourceFamily": "Network", "resourceGroup": "PremiumInternetEgress"}
DEBIAN: dict[str, Any] = {"regions": ("global",), "resourceFamily": "License"}


def gcp_compute_skus() -> list[dict[str, Any]]:
    """Return cores and memory of N2, on demand and spot, among similar SKUs."""
    americas = ("us-central1", "us-east1")
    return [
        gcp_sku("N2 Instance Core running in Virginia", "h", (0, 35_603_000), **VIRGINIA),
        gcp_sku("N2 Instance Ram running in Virginia", "GiBy.h", (0, 4_772_000), **VIRGINIA),
        gcp_sku("Spot Preemptible N2 Instance Core running in Virginia", "h", (0, 8_600_000), **SPOT),
        gcp_sku("Spot Preemptible N2 Instance Ram running in Virginia", "GiBy.h", (0, 1_153_000), **SPOT),
        gcp_sku("N2 Custom Instance Core running in Virginia", "h", (0, 37_383_000), **VIRGINIA),
        gcp_sku("Commitment v1: N2 Cpu in Virginia for 1 Year", "h", (0, 1), **COMMITTED),
        gcp_sku("N2 Instance Core running in Americas", "h", (0, 31_611_000), regions=americas),
        gcp_sku("E2 Instance Core running in Tokyo", "h", (0, 28_000_000), regions=("asia-northeast1",)),
    ]


def gcp_egress_skus() -> list[dict[str, Any]]:
    """Return egress to Google's other regions, one of them unknown, and to the internet, in tiers after a free one."""
    emea_tiers = ((0, 0), (1, 120_000_000), (1024, 110_000_000), (10240, 80_000_000))
    out, internet = "Network Inter Region Data Transfer Out", "Network Internet Data Transfer Out"
    return [
        gcp_sku(f"{out} from Virginia to Americas", "GiBy", (0, 20_000_000), **BETWEEN_REGIONS),
        gcp_sku(f"{out} from Virginia to Tokyo", "GiBy", (0, 80_000_000), **BETWEEN_REGIONS),
        gcp_sku(f"{out} from Virginia to Atlantis", "GiBy", (0, 1), **BETWEEN_REGIONS),
        gcp_sku(f"{internet} from Virginia to EMEA", "GiBy", *emea_tiers, **TO_THE_INTERNET),
        gcp_sku(f"{internet} from Virginia to Africa", "GiBy", (0, 150_000_000), **TO_THE_INTERNET),
        gcp_sku(f"{internet} from Virginia to China", "GiBy", (0, 230_000_000), **TO_THE_INTERNET),
    ]
