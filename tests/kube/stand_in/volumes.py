"""A pod's volumes and environment, as the kubelet prepares them."""

from __future__ import annotations

import base64
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kube.api_client import ApiClient, ApiError

Object = dict[str, Any]


class NotReadyError(Exception):
    """Something that the pod needs is not there yet: the kubelet would try again."""


@dataclass(frozen=True)
class PodPlace:
    """Where a pod's files are on this machine."""

    pod: Object
    folder: Path
    host: Path
    """Stands for host paths that this machine does not have."""
    client: ApiClient

    def mounts(self, container: Object) -> list[dict[str, Any]]:
        """Prepare the volumes that a container mounts."""
        volumes = {volume["name"]: volume for volume in self.pod["spec"].get("volumes", [])}
        found = [self._hosts_file()]
        for mount in container.get("volumeMounts", []):
            volume = volumes[mount["name"]]
            source: Path = self._source(volume) / mount.get("subPath", "")
            fixed = "configMap" in volume or "projected" in volume
            read_only = bool(mount.get("readOnly")) or fixed
            entry = {"source": str(source), "target": mount["mountPath"], "read_only": read_only}
            found.append(entry)
        return found

    def environment(self, container: Object) -> dict[str, str]:
        """Return the container's variables, the later of a name winning."""
        values: dict[str, str] = {}
        for source in container.get("envFrom", []):
            if "configMapRef" in source:
                data = self._config_map(source["configMapRef"]).get("data", {})
                values |= {source.get("prefix", "") + key: value for key, value in data.items()}
        for variable in container.get("env", []):
            values[variable["name"]] = self._value(variable, values)
        return values

    def command(self, container: Object, values: dict[str, str]) -> list[str]:
        parts = container.get("command", []) + container.get("args", [])
        return [_expanded(part, values) for part in parts]

    def _value(self, variable: Object, values: dict[str, str]) -> str:
        origin = variable.get("valueFrom", {})
        if "fieldRef" in origin:
            return self._field(origin["fieldRef"]["fieldPath"])
        if "configMapKeyRef" in origin:
            reference = origin["configMapKeyRef"]
            return str(self._config_map(reference).get("data", {}).get(reference["key"], ""))
        return _expanded(variable.get("value", ""), values)

    def _field(self, path: str) -> str:
        if key := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
            return str(self.pod["metadata"].get(key[1], {}).get(key[2], ""))
        known = {"status.podIP": "127.0.0.1", "status.hostIP": "127.0.0.1"}
        if path in known:
            return known[path]
        part, name = path.split(".", 1)
        return str(self.pod[part].get(name, ""))

    def _source(self, volume: Object) -> Path:
        place: Path = self.folder / "volumes" / volume["name"]
        if "hostPath" in volume:
            return self._host_path(volume["hostPath"])
        if "configMap" in volume:
            return self._fill(place, [volume["configMap"]])
        if "projected" in volume:
            sources = volume["projected"].get("sources", [])
            return self._fill(place, [part["configMap"] for part in sources if "configMap" in part])
        if "emptyDir" in volume:
            place.mkdir(parents=True, exist_ok=True)
            return place
        raise NotReadyError(f'volume "{volume["name"]}" is of a kind the stand-in does not have')

    def _host_path(self, volume: Object) -> Path:
        path = Path(volume["path"])
        if path.exists():
            return path
        own = self.host / path.relative_to("/")
        if not own.exists():
            if volume.get("type") in ("Directory", "File", "Socket"):
                raise NotReadyError(f"hostPath type check failed: {path} is not there")
            own.mkdir(parents=True)
        return own

    def _fill(self, place: Path, references: list[Object]) -> Path:
        contents: dict[str, bytes] = {}
        for reference in references:
            contents |= _chosen(reference, _files(self._config_map(reference)))
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for name, content in contents.items():
            file = place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return place

    def _config_map(self, reference: Object) -> Object:
        path = f"api/v1/namespaces/{self.pod['metadata']['namespace']}/configmaps"
        try:
            return self.client.get(f"{path}/{reference['name']}")
        except ApiError as error:
            if error.code == 404 and reference.get("optional"):
                return {}
            raise NotReadyError(f'configmap "{reference["name"]}" not found') from error

    def _hosts_file(self) -> dict[str, Any]:
        """Stand for the DNS of the job's Service: all its pods are on this machine."""
        names = {"localhost", self.pod["metadata"]["name"]}
        for container in self.pod["spec"]["containers"]:
            for variable in container.get("env", []):
                if variable["name"] == "DI_NODES":
                    names |= set(variable["value"].split(","))
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "hosts"
        file.write_text("".join(f"127.0.0.1 {name}\n" for name in sorted(names)))
        return {"source": str(file), "target": "/etc/hosts", "read_only": False}


def _files(config_map: Object) -> dict[str, bytes]:
    binary = config_map.get("binaryData", {})
    found = {name: text.encode() for name, text in config_map.get("data", {}).items()}
    return found | {name: base64.b64decode(data) for name, data in binary.items()}


def _chosen(reference: Object, files: dict[str, bytes]) -> dict[str, bytes]:
    if "items" not in reference:
        return files
    for item in reference["items"]:
        if item["key"] not in files and not reference.get("optional"):
            raise NotReadyError(f"references non-existent config key: {item['key']}")
    return {item["path"]: files[item["key"]] for item in reference["items"] if item["key"] in files}


def _expanded(text: str, values: dict[str, str]) -> str:
    """Replace $(NAME) by a variable that is known, as Kubernetes does."""
    return re.sub(r"\$\((\w+)\)", lambda found: values.get(found[1], found[0]), text)
