#include "placement/cost/profile_file.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "placement/files/yaml_reader.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr int64_t kVersion = 1;
constexpr int64_t kMaxThreads = 4096;
constexpr int64_t kMaxDimension = int64_t{1} << 48;
constexpr int64_t kMaxIndex = 100'000'000;
constexpr double kMaxMemoryBytes = 1e18;
constexpr char kAny[] = "*";

// -- Writing.

std::string Number(double value) { return absl::StrFormat("%.6g", value); }

std::string Quoted(const std::string& text) {
  return absl::StrCat("\"", absl::CHexEscape(text), "\"");
}

std::string CurveText(const RateCurve& curve) {
  return absl::StrCat("[",
                      absl::StrJoin(curve.points, ", ",
                                    [](std::string* out, const RateCurve::Point& point) {
                                      absl::StrAppend(out, "[", Number(point.work), ", ",
                                                      Number(point.per_second), "]");
                                    }),
                      "]");
}

std::string WorkText(const OpWork& work) {
  if (work.kind == 0) return "";
  return absl::StrFormat(", kind: \"%016x\", type: %s, flops: %s, bytes: %s, dims: [%s]", work.kind,
                         DTypeName(work.dtype), Number(work.flops), Number(work.bytes),
                         absl::StrJoin(work.dims, ", "));
}

void AppendDevice(const DeviceProfile& device, std::string& text) {
  absl::StrAppend(&text, "  - name: ", Quoted(device.name), "\n    source: ", Quoted(device.source),
                  "\n    threads: ", device.threads, "\n");
  for (const auto& [key, value] : {std::pair("card", &device.card), {"driver", &device.driver}}) {
    if (!value->empty()) absl::StrAppend(&text, "    ", key, ": ", Quoted(*value), "\n");
  }
  for (const auto& [key, value] : {std::pair("node", device.node_seconds),
                                   {"wake", device.wake_seconds},
                                   {"step", device.step_seconds},
                                   {"input", device.input_bytes_per_second},
                                   {"elementwise_flops", device.elementwise_flops},
                                   {"product_exposed", device.product_exposed},
                                   {"host_rate", device.host_bytes_per_second},
                                   {"host_copy", device.host_copy_seconds},
                                   {"copy_rate", device.copy_bytes_per_second},
                                   {"memory", static_cast<double>(device.memory_bytes)}}) {
    if (value > 0) absl::StrAppend(&text, "    ", key, ": ", Number(value), "\n");
  }
  absl::StrAppend(&text, "    contraction:\n");
  for (const auto& [dtype, curve] : device.contraction) {
    absl::StrAppend(&text, "      ", std::string(DTypeName(dtype)), ": ", CurveText(curve), "\n");
  }
  absl::StrAppend(&text, "    elementwise: ", CurveText(device.elementwise),
                  "\n    movement: ", CurveText(device.movement), "\n");
  if (device.ops.empty()) return;
  absl::StrAppend(&text, "    ops:\n");
  for (const auto& [op, measured] : device.ops) {
    absl::StrAppendFormat(&text, "      - {op: %s, key: \"%016x\", threads: %d, ",
                          Quoted(measured.text), op.key, op.threads);
    if (op.in_flight > 1) absl::StrAppend(&text, "in_flight: ", op.in_flight, ", ");
    absl::StrAppend(&text, "seconds: ", Number(measured.seconds), WorkText(measured.work), "}\n");
  }
}

void AppendLink(const std::string& ends, const LinkProfile& link, std::string& text) {
  absl::StrAppend(&text, "  - {", ends, ", latency: ", Number(link.latency_seconds),
                  ", rate: ", Number(link.bytes_per_second));
  for (const auto& [key, value] : {std::pair("exchange", link.exchange_bytes_per_second),
                                   {"contention", link.contention},
                                   {"send", link.send_seconds},
                                   {"receive", link.receive_seconds}}) {
    if (value > 0) absl::StrAppend(&text, ", ", key, ": ", Number(value));
  }
  if (link.rails > 1) absl::StrAppend(&text, ", rails: ", link.rails);
  if (link.through_host) absl::StrAppend(&text, ", through_host: true");
  absl::StrAppend(&text, ", source: ", Quoted(link.source), "}\n");
}

// -- Reading.

absl::StatusOr<uint64_t> ReadHex(const YamlMap& map, const std::string& key) {
  std::string text;
  WEFT_RETURN_IF_ERROR(map.Text(key, text));
  uint64_t number = 0;
  if (text.size() == 16 && absl::SimpleHexAtoi(text, &number)) return number;
  return map.KeyError(key, absl::StrCat("'", text, "' is not a number of 16 hexadecimal digits"));
}

class ProfileReader {
 public:
  explicit ProfileReader(const YamlSource& source) : source_(source) {}

  absl::StatusOr<ClusterProfile> Read(const YAML::Node& root) {
    WEFT_ASSIGN_OR_RETURN(const YamlMap map, YamlMap::Read(source_, root, "the profile",
                                                           {"version", "cluster_digest", "devices",
                                                            "workers", "hosts", "links"}));
    WEFT_ASSIGN_OR_RETURN(const YAML::Node version, map.Require("version"));
    WEFT_RETURN_IF_ERROR(ReadInteger(source_, version, "'version'", kVersion, kVersion).status());
    if (map.Find("cluster_digest") != nullptr) {
      WEFT_ASSIGN_OR_RETURN(profile_.cluster_digest, ReadHex(map, "cluster_digest"));
    }
    WEFT_ASSIGN_OR_RETURN(const YAML::Node devices, map.Require("devices"));
    for (const YAML::Node& device : devices) WEFT_RETURN_IF_ERROR(ReadDevice(device));
    const int64_t last = static_cast<int64_t>(profile_.devices.size()) - 1;
    WEFT_ASSIGN_OR_RETURN(profile_.device_of, ReadIndices(map, "workers", last));
    WEFT_ASSIGN_OR_RETURN(profile_.host_of, ReadIndices(map, "hosts", kMaxIndex));
    if (profile_.host_of.size() != profile_.device_of.size()) {
      return map.KeyError("hosts",
                          absl::StrCat("there are ", profile_.device_of.size(), " workers and ",
                                       profile_.host_of.size(), " hosts of workers"));
    }
    WEFT_ASSIGN_OR_RETURN(const YAML::Node links, map.Require("links"));
    for (const YAML::Node& link : links) WEFT_RETURN_IF_ERROR(ReadLink(link));
    if (!(profile_.within_host.bytes_per_second > 0 &&
          profile_.between_hosts.bytes_per_second > 0)) {
      return map.KeyError("links", "one within '*' and one from '*' to '*' are needed");
    }
    return std::move(profile_);
  }

 private:
  absl::StatusOr<std::vector<int>> ReadIndices(const YamlMap& map, const std::string& key,
                                               int64_t last) const {
    WEFT_ASSIGN_OR_RETURN(const YAML::Node list, map.Require(key));
    if (!list.IsSequence() || list.size() == 0) {
      return map.KeyError(key, "expected a list of at least one number");
    }
    std::vector<int> indices;
    for (const YAML::Node& item : list) {
      WEFT_ASSIGN_OR_RETURN(const int64_t index,
                            ReadInteger(source_, item, absl::StrCat("'", key, "'"), 0, last));
      indices.push_back(static_cast<int>(index));
    }
    return indices;
  }

  absl::Status ReadPositive(const YamlMap& map, const std::string& key, double& value) const {
    WEFT_RETURN_IF_ERROR(map.Number(key, value));
    if (value >= 0) return absl::OkStatus();
    return map.KeyError(key, absl::StrCat(value, " is less than nothing"));
  }

  absl::StatusOr<RateCurve> ReadCurve(const YAML::Node& node, const std::string& what) const {
    if (!node.IsSequence() || node.size() == 0) {
      return source_.Error(node, absl::StrCat(what, ": expected a list of [work, rate]"));
    }
    RateCurve curve;
    for (const YAML::Node& item : node) {
      if (!item.IsSequence() || item.size() != 2) {
        return source_.Error(item, absl::StrCat(what, ": expected [work, rate]"));
      }
      RateCurve::Point point;
      WEFT_ASSIGN_OR_RETURN(point.work, ReadNumber(source_, item[0], what));
      WEFT_ASSIGN_OR_RETURN(point.per_second, ReadNumber(source_, item[1], what));
      const bool rises = curve.points.empty() || point.work > curve.points.back().work;
      if (!(point.work > 0) || !(point.per_second > 0) || !rises) {
        return source_.Error(item,
                             absl::StrCat(what, ": work and rates are positive, and work rises"));
      }
      curve.points.push_back(point);
    }
    return curve;
  }

  absl::Status ReadDevice(const YAML::Node& node) {
    WEFT_ASSIGN_OR_RETURN(
        const YamlMap map,
        YamlMap::Read(source_, node, "a device",
                      {"name", "source", "threads", "card", "driver", "node", "wake", "step",
                       "input", "elementwise_flops", "product_exposed", "memory", "host_rate",
                       "host_copy", "copy_rate", "contraction", "elementwise", "movement", "ops"}));
    DeviceProfile device;
    WEFT_RETURN_IF_ERROR(map.Text("name", device.name));
    WEFT_RETURN_IF_ERROR(map.Text("source", device.source));
    WEFT_RETURN_IF_ERROR(map.Text("card", device.card));
    WEFT_RETURN_IF_ERROR(map.Text("driver", device.driver));
    WEFT_RETURN_IF_ERROR(map.Int("threads", 1, kMaxThreads, device.threads));
    double memory = 0;
    for (const auto& [key, value] : {std::pair("node", &device.node_seconds),
                                     {"wake", &device.wake_seconds},
                                     {"step", &device.step_seconds},
                                     {"input", &device.input_bytes_per_second},
                                     {"elementwise_flops", &device.elementwise_flops},
                                     {"product_exposed", &device.product_exposed},
                                     {"host_rate", &device.host_bytes_per_second},
                                     {"host_copy", &device.host_copy_seconds},
                                     {"copy_rate", &device.copy_bytes_per_second},
                                     {"memory", &memory}}) {
      WEFT_RETURN_IF_ERROR(ReadPositive(map, key, *value));
    }
    if (memory > kMaxMemoryBytes) return map.KeyError("memory", "no device has as many bytes");
    device.memory_bytes = static_cast<int64_t>(memory);
    WEFT_ASSIGN_OR_RETURN(const YAML::Node contraction, map.Require("contraction"));
    WEFT_ASSIGN_OR_RETURN(const std::vector<YamlEntry> types,
                          ReadEntries(source_, contraction, "'contraction'"));
    for (const YamlEntry& type : types) {
      const std::optional<DType> dtype = ParseDType(type.key);
      if (!dtype.has_value()) {
        return source_.Error(type.key_node, absl::StrCat("no element type is '", type.key, "'"));
      }
      WEFT_ASSIGN_OR_RETURN(device.contraction[*dtype], ReadCurve(type.value, type.key));
    }
    WEFT_ASSIGN_OR_RETURN(const YAML::Node elementwise, map.Require("elementwise"));
    WEFT_ASSIGN_OR_RETURN(device.elementwise, ReadCurve(elementwise, "'elementwise'"));
    WEFT_ASSIGN_OR_RETURN(const YAML::Node movement, map.Require("movement"));
    WEFT_ASSIGN_OR_RETURN(device.movement, ReadCurve(movement, "'movement'"));
    if (const YAML::Node* ops = map.Find("ops")) {
      for (const YAML::Node& op : *ops) WEFT_RETURN_IF_ERROR(ReadOp(op, device));
    }
    profile_.devices.push_back(std::move(device));
    return absl::OkStatus();
  }

  absl::Status ReadWork(const YamlMap& map, OpWork& work) const {
    WEFT_ASSIGN_OR_RETURN(work.kind, ReadHex(map, "kind"));
    WEFT_ASSIGN_OR_RETURN(const YAML::Node type, map.Require("type"));
    WEFT_ASSIGN_OR_RETURN(const std::string name, ReadText(source_, type, "'type'"));
    const std::optional<DType> dtype = ParseDType(name);
    if (!dtype.has_value()) {
      return map.KeyError("type", absl::StrCat("no element type is '", name, "'"));
    }
    work.dtype = *dtype;
    WEFT_RETURN_IF_ERROR(ReadPositive(map, "flops", work.flops));
    WEFT_RETURN_IF_ERROR(ReadPositive(map, "bytes", work.bytes));
    WEFT_ASSIGN_OR_RETURN(const YAML::Node dims, map.Require("dims"));
    if (!dims.IsSequence()) return map.KeyError("dims", "expected a list of numbers");
    for (const YAML::Node& dim : dims) {
      WEFT_ASSIGN_OR_RETURN(const int64_t size,
                            ReadInteger(source_, dim, "'dims'", 0, kMaxDimension));
      work.dims.push_back(size);
    }
    return absl::OkStatus();
  }

  absl::Status ReadOp(const YAML::Node& node, DeviceProfile& device) const {
    WEFT_ASSIGN_OR_RETURN(const YamlMap map,
                          YamlMap::Read(source_, node, "an op",
                                        {"op", "key", "threads", "in_flight", "seconds", "kind",
                                         "type", "flops", "bytes", "dims"}));
    MeasuredOp op;
    OpMeasurement measured;
    WEFT_ASSIGN_OR_RETURN(op.key, ReadHex(map, "key"));
    WEFT_RETURN_IF_ERROR(map.Int("threads", 1, kMaxThreads, op.threads));
    WEFT_RETURN_IF_ERROR(map.Int("in_flight", 1, kMaxIndex, op.in_flight));
    WEFT_RETURN_IF_ERROR(map.Text("op", measured.text));
    WEFT_RETURN_IF_ERROR(ReadPositive(map, "seconds", measured.seconds));
    if (map.Find("kind") != nullptr) {
      WEFT_RETURN_IF_ERROR(ReadWork(map, measured.work));
    }
    device.ops[op] = std::move(measured);
    return absl::OkStatus();
  }

  absl::Status ReadLink(const YAML::Node& node) {
    WEFT_ASSIGN_OR_RETURN(
        const YamlMap map,
        YamlMap::Read(source_, node, "a link",
                      {"within", "from", "to", "latency", "rate", "exchange", "contention", "send",
                       "receive", "rails", "through_host", "source"}));
    LinkProfile link;
    WEFT_RETURN_IF_ERROR(map.Text("source", link.source));
    WEFT_RETURN_IF_ERROR(map.Int("rails", 1, kMaxIndex, link.rails));
    WEFT_RETURN_IF_ERROR(map.Bool("through_host", link.through_host));
    for (const auto& [key, value] : {std::pair("latency", &link.latency_seconds),
                                     {"rate", &link.bytes_per_second},
                                     {"exchange", &link.exchange_bytes_per_second},
                                     {"contention", &link.contention},
                                     {"send", &link.send_seconds},
                                     {"receive", &link.receive_seconds}}) {
      WEFT_RETURN_IF_ERROR(ReadPositive(map, key, *value));
    }
    if (link.contention > 1) return map.KeyError("contention", "it is a share, at most 1");
    if (!(link.bytes_per_second > 0)) {
      return source_.Error(node, "a link needs a positive 'rate' in bytes per second");
    }
    if (map.Find("within") != nullptr) {
      WEFT_ASSIGN_OR_RETURN(const int host, ReadHost(map, "within"));
      if (host < 0) {
        profile_.within_host = link;
      } else {
        profile_.links[{host, host}] = link;
      }
      return absl::OkStatus();
    }
    WEFT_ASSIGN_OR_RETURN(const int from, ReadHost(map, "from"));
    WEFT_ASSIGN_OR_RETURN(const int to, ReadHost(map, "to"));
    if ((from < 0) != (to < 0)) {
      return map.KeyError("from", "'*' stands for all hosts on both ends");
    }
    if (from < 0) {
      profile_.between_hosts = link;
    } else {
      profile_.links[{from, to}] = link;
    }
    return absl::OkStatus();
  }

  // -1 for all of them.
  absl::StatusOr<int> ReadHost(const YamlMap& map, const std::string& key) const {
    WEFT_ASSIGN_OR_RETURN(const YAML::Node node, map.Require(key));
    WEFT_ASSIGN_OR_RETURN(const std::string text, ReadText(source_, node, key));
    if (text == kAny) return -1;
    WEFT_ASSIGN_OR_RETURN(const int64_t host, ReadInteger(source_, node, key, 0, kMaxIndex));
    return static_cast<int>(host);
  }

  const YamlSource& source_;
  ClusterProfile profile_;
};

}  // namespace

std::string ProfileToYaml(const ClusterProfile& profile) {
  std::string text = absl::StrCat("version: ", kVersion, "\n");
  if (profile.cluster_digest != 0) {
    absl::StrAppendFormat(&text, "cluster_digest: \"%016x\"\n", profile.cluster_digest);
  }
  absl::StrAppend(&text, "devices:\n");
  for (const DeviceProfile& device : profile.devices) AppendDevice(device, text);
  absl::StrAppend(&text, "workers: [", absl::StrJoin(profile.device_of, ", "), "]\nhosts: [",
                  absl::StrJoin(profile.host_of, ", "), "]\nlinks:\n");
  AppendLink("within: \"*\"", profile.within_host, text);
  AppendLink("from: \"*\", to: \"*\"", profile.between_hosts, text);
  for (const auto& [hosts, link] : profile.links) {
    const auto& [from, to] = hosts;
    AppendLink(
        from == to ? absl::StrCat("within: ", from) : absl::StrCat("from: ", from, ", to: ", to),
        link, text);
  }
  return text;
}

absl::StatusOr<ClusterProfile> ParseProfileFile(const std::string& text,
                                                const std::string& file_name) {
  const YamlSource source(file_name);
  WEFT_ASSIGN_OR_RETURN(const YAML::Node root, source.Load(text));
  return ProfileReader(source).Read(root);
}

}  // namespace weft
