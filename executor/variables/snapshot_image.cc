#include "executor/variables/snapshot_image.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "platform/status_macros.h"
#include "platform/text/json_limits.h"
#include "tensor/dtype.h"

namespace weft {
namespace {

using ImageJson = nlohmann::json;

constexpr int64_t kVariableAlignment = 64;
constexpr int kImageHeaderDepth = 3;
constexpr int64_t kMaxImageValues = int64_t{1} << 21;
// Of one axis; a job has fewer ranks.
constexpr int64_t kMaxCuts = int64_t{1} << 20;

int64_t Aligned(int64_t bytes) {
  return (bytes + kVariableAlignment - 1) / kVariableAlignment * kVariableAlignment;
}

ImageJson EntryJson(const VariableShard& shard) {
  const std::vector<int64_t> dims(shard.global_shape.dims().begin(),
                                  shard.global_shape.dims().end());
  ImageJson json = {
      {"name", shard.name}, {"dtype", std::string(DTypeName(shard.dtype))}, {"shape", dims}};
  if (shard.tensor_sharding.is_split() && shard.tensor_shards > 1) {
    json["sharding"] = shard.tensor_sharding.ToString();
    json["shards"] = shard.tensor_shards;
    json["shard"] = shard.tensor_index;
  }
  if (shard.data_shards > 1) {
    json["row_shards"] = shard.data_shards;
    json["row_shard"] = shard.data_index;
  }
  if (shard.trainable) json["trainable"] = true;
  if (!shard.slot_of.empty()) json["slot_of"] = shard.slot_of;
  return json;
}

// Gives the entries their places behind the header; the end of the last one.
int64_t Place(SnapshotLayout& layout) {
  int64_t end = static_cast<int64_t>(layout.header.size());
  for (SnapshotEntry& entry : layout.entries) {
    entry.offset = Aligned(end);
    end = entry.offset + entry.bytes();
  }
  return end;
}

// Reads the entries of one header; the first thing that is wrong stays.
class EntryReader {
 public:
  explicit EntryReader(const std::string& name) : name_(name) {}
  absl::StatusOr<VariableShard> Read(const ImageJson& json);
  absl::Status Damaged(const std::string& what) const {
    return absl::DataLossError(
        absl::StrCat("\"", absl::Utf8SafeCEscape(name_), "\" is damaged: ", what));
  }

 private:
  static std::string Text(const ImageJson& json, const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_string() ? found->get<std::string>() : "";
  }
  // `missing` where there is none; -1 where it is no number of cuts.
  static int Number(const ImageJson& json, const char* key, int missing) {
    const auto found = json.find(key);
    if (found == json.end()) return missing;
    if (!found->is_number_unsigned()) return -1;
    const auto number = found->get<uint64_t>();
    return number > static_cast<uint64_t>(kMaxCuts) ? -1 : static_cast<int>(number);
  }

  const std::string& name_;
};

absl::StatusOr<VariableShard> EntryReader::Read(const ImageJson& json) {
  if (!json.is_object()) return Damaged("an entry of its header is no object");
  VariableShard shard;
  shard.name = Text(json, "name");
  const auto damaged = [&](std::string_view what) {
    return Damaged(absl::StrCat("variable '", absl::Utf8SafeCEscape(shard.name), "' ",
                                absl::string_view(what.data(), what.size())));
  };
  const std::optional<DType> dtype = ParseDType(Text(json, "dtype"));
  if (!dtype.has_value() || DTypeBits(*dtype) <= 0) return damaged("has a type unknown here");
  shard.dtype = *dtype;
  const auto shape = json.find("shape");
  if (shape == json.end() || !shape->is_array()) return damaged("has no shape");
  std::vector<int64_t> dims;
  for (const ImageJson& dim : *shape) {
    const bool good =
        dim.is_number_unsigned() && dim.get<uint64_t>() <= static_cast<uint64_t>(kMaxDim);
    if (!good) return damaged("has a shape that no tensor has");
    dims.push_back(dim.get<int64_t>());
  }
  auto global = Shape::Create(dims);
  if (!global.ok()) return damaged("has a shape that no tensor has");
  shard.global_shape = *std::move(global);
  if (json.contains("sharding")) {
    auto sharding = AxisSharding::Parse(Text(json, "sharding"));
    if (!sharding.ok() || !sharding->is_split()) return damaged("has a cut unknown here");
    shard.tensor_sharding = *sharding;
  }
  shard.tensor_shards = Number(json, "shards", 1);
  shard.tensor_index = Number(json, "shard", 0);
  shard.data_shards = Number(json, "row_shards", 1);
  shard.data_index = Number(json, "row_shard", 0);
  shard.trainable = json.contains("trainable");
  shard.slot_of = Text(json, "slot_of");
  shard.is_primary = true;
  auto local = ShapeOfCut(shard);
  if (!local.ok()) return damaged("has a cut that its shape does not allow");
  shard.local_shape = *std::move(local);
  return shard;
}

}  // namespace

absl::StatusOr<Shape> ShapeOfCut(const VariableShard& shard) {
  const bool in_range = shard.tensor_shards >= 1 && shard.tensor_index >= 0 &&
                        shard.tensor_index < shard.tensor_shards && shard.data_shards >= 1 &&
                        shard.data_index >= 0 && shard.data_index < shard.data_shards;
  if (!in_range) return absl::InvalidArgumentError("a slice that there is not");
  Shape local = shard.global_shape;
  if (shard.tensor_shards > 1) {
    WEFT_RETURN_IF_ERROR(shard.tensor_sharding.Validate(shard.global_shape));
    local = shard.tensor_sharding.LocalShape(shard.global_shape, shard.tensor_shards,
                                             shard.tensor_index);
  }
  if (shard.data_shards > 1) {
    if (local.rank() == 0) return absl::InvalidArgumentError("rows of a scalar");
    const auto rows = AxisSharding::ShardRange(local.dim(0), shard.data_shards, shard.data_index);
    local.set_dim(0, rows.count);
  }
  return local;
}

SnapshotLayout LayOutSnapshot(std::vector<VariableShard> shards) {
  std::sort(shards.begin(), shards.end(),
            [](const VariableShard& a, const VariableShard& b) { return a.name < b.name; });
  SnapshotLayout layout;
  ImageJson json = ImageJson::array();
  for (VariableShard& shard : shards) {
    json.push_back(EntryJson(shard));
    shard.is_primary = true;
    layout.entries.push_back({std::move(shard), 0});
  }
  std::string text = json.dump(-1, ' ', false, ImageJson::error_handler_t::replace);
  const auto whole = kSnapshotLengthBytes + static_cast<int64_t>(text.size());
  text.append(static_cast<size_t>(Aligned(whole) - whole), ' ');
  const auto length = static_cast<uint64_t>(text.size());
  for (int64_t i = 0; i < kSnapshotLengthBytes; ++i) {
    layout.header.push_back(static_cast<char>((length >> (8 * i)) & 0xff));
  }
  layout.header += text;
  layout.bytes = Place(layout);
  return layout;
}

absl::StatusOr<int64_t> SnapshotHeaderBytes(std::span<const std::byte> begin, int64_t image_bytes,
                                            const std::string& name) {
  const EntryReader reader(name);
  if (static_cast<int64_t>(begin.size()) < kSnapshotLengthBytes) {
    return reader.Damaged(absl::StrCat("it has ", begin.size(), " bytes and no header"));
  }
  uint64_t length = 0;
  for (int64_t i = 0; i < kSnapshotLengthBytes; ++i) {
    length |= std::to_integer<uint64_t>(begin[static_cast<size_t>(i)]) << (8 * i);
  }
  if (length > static_cast<uint64_t>(kMaxSnapshotHeaderBytes) ||
      static_cast<int64_t>(length) > image_bytes - kSnapshotLengthBytes) {
    return reader.Damaged(absl::StrCat("its header is said to have ", length, " bytes, of ",
                                       image_bytes, " in all and ", kMaxSnapshotHeaderBytes,
                                       " that are read"));
  }
  return kSnapshotLengthBytes + static_cast<int64_t>(length);
}

absl::StatusOr<SnapshotLayout> ParseSnapshot(std::span<const std::byte> header, int64_t image_bytes,
                                             const std::string& name) {
  EntryReader reader(name);
  WEFT_ASSIGN_OR_RETURN(const int64_t length, SnapshotHeaderBytes(header, image_bytes, name));
  if (length > static_cast<int64_t>(header.size())) {
    return reader.Damaged(
        absl::StrCat("of ", length, " bytes of its header ", header.size(), " are here"));
  }
  SnapshotLayout layout;
  layout.header.assign(reinterpret_cast<const char*>(header.data()), static_cast<size_t>(length));
  const std::string_view text =
      std::string_view(layout.header).substr(static_cast<size_t>(kSnapshotLengthBytes));
  const absl::Status within =
      CheckJsonLimits(text, {kMaxSnapshotHeaderBytes, kImageHeaderDepth, kMaxImageValues});
  if (!within.ok()) return reader.Damaged(absl::StrCat("its header is ", within.message()));
  const ImageJson json =
      ImageJson::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) return reader.Damaged("its header is no list of variables");
  std::set<std::string> names;
  int64_t left = image_bytes;
  for (const ImageJson& entry : json) {
    WEFT_ASSIGN_OR_RETURN(VariableShard shard, reader.Read(entry));
    // Before anything is multiplied: elements are at least a bit.
    const int64_t elements = shard.local_shape.num_elements();
    const bool fits = elements / 8 <= left && DTypeBytes(shard.dtype, elements) <= left;
    if (!fits || !names.insert(shard.name).second) {
      return reader.Damaged(absl::StrCat("variable '", absl::Utf8SafeCEscape(shard.name),
                                         fits ? "' is in it twice" : "' is larger than it"));
    }
    left -= DTypeBytes(shard.dtype, elements);
    layout.entries.push_back({std::move(shard), 0});
  }
  layout.bytes = Place(layout);
  if (layout.bytes == image_bytes) return layout;
  return reader.Damaged(
      absl::StrCat("it has ", image_bytes, " bytes, its variables end at byte ", layout.bytes));
}

}  // namespace weft
