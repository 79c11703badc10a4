#include "training/checkpoint/checkpoint_index.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "executor/variables/snapshot_image.h"
#include "nlohmann/json.hpp"
#include "platform/checksum.h"
#include "platform/status_macros.h"
#include "platform/text/json_limits.h"

namespace weft {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // of indexes that are written

constexpr char kFormat[] = "weft-checkpoint";
// Before the checksum of all that comes before it.
constexpr char kChecksumKey[] = ",\n\"checksum\": ";
constexpr int64_t kMaxShards = int64_t{1} << 20;
constexpr int64_t kMaxStep = int64_t{1} << 53;
constexpr int64_t kMaxFileBytes = int64_t{1} << 42;  // so the sum of all fits
// A job of 1000 workers that each own a part of 1000 tensors has ten million values.
constexpr JsonLimits kIndexLimits = {
    .bytes = int64_t{1} << 26, .depth = 16, .values = int64_t{1} << 24};

std::string Hex(uint64_t value) { return absl::StrFormat("%016x", value); }

std::string Text(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// The end of an index whose text begins so.
std::string Tail(const std::string& body) {
  return absl::StrCat(kChecksumKey, "\"", Hex(Checksum(std::as_bytes(std::span(body)))), "\"\n}\n");
}

OrderedJson PartJson(const CheckpointPart& part) {
  OrderedJson json = {{"file", part.file}, {"checksum", Hex(part.checksum)}};
  if (part.shards > 1 || part.row_shards > 1) {
    json["slice"] = {{"axis", part.sharding.axis},    {"blocks", part.sharding.blocks},
                     {"shards", part.shards},         {"shard", part.shard},
                     {"row_shards", part.row_shards}, {"row_shard", part.row_shard}};
  }
  return json;
}

OrderedJson TensorJson(const CheckpointTensor& tensor) {
  OrderedJson json = {
      {"name", tensor.name},
      {"dtype", std::string(DTypeName(tensor.dtype))},
      {"shape", std::vector<int64_t>(tensor.shape.dims().begin(), tensor.shape.dims().end())}};
  if (tensor.trainable) json["trainable"] = true;
  if (!tensor.slot_of.empty()) json["slot_of"] = tensor.slot_of;
  json["parts"] = OrderedJson::array();
  for (const CheckpointPart& part : tensor.parts) json["parts"].push_back(PartJson(part));
  return json;
}

// Takes values out of JSON that nobody needs to trust. The first thing that is wrong sticks; from
// then on values are empty.
class Reader {
 public:
  explicit Reader(std::string name) : name_(std::move(name)) {}

  const absl::Status& status() const { return status_; }
  void Fail(const std::string& what) {
    if (!status_.ok()) return;
    status_ = absl::DataLossError(
        absl::StrCat("\"", absl::Utf8SafeCEscape(name_), "\" is damaged: ", what));
  }

  const Json& Object(const Json& parent, const char* key) {
    return Of(parent, key, &Json::is_object);
  }
  const Json& Array(const Json& parent, const char* key) {
    return Of(parent, key, &Json::is_array);
  }
  std::string String(const Json& parent, const char* key) {
    const Json& value = Of(parent, key, &Json::is_string);
    return value.is_string() ? value.get<std::string>() : std::string();
  }
  bool Bool(const Json& parent, const char* key) {
    const Json& value = Of(parent, key, &Json::is_boolean);
    return value.is_boolean() && value.get<bool>();
  }
  uint64_t Unsigned(const Json& parent, const char* key,
                    uint64_t max_value = std::numeric_limits<uint64_t>::max()) {
    const Json& value = Of(parent, key, &Json::is_number_unsigned);
    if (!value.is_number_unsigned()) return 0;
    const uint64_t number = value.get<uint64_t>();
    if (number <= max_value) return number;
    Fail(absl::StrCat("'", key, "' is ", number, ", the most is ", max_value));
    return 0;
  }
  int64_t Int(const Json& parent, const char* key,
              int64_t max_value = std::numeric_limits<int64_t>::max()) {
    return static_cast<int64_t>(Unsigned(parent, key, static_cast<uint64_t>(max_value)));
  }
  uint64_t Hash(const Json& parent, const char* key) {
    const std::string text = String(parent, key);
    uint64_t value = 0;
    if (text.size() != 16 || !absl::SimpleHexAtoi(text, &value)) {
      Fail(absl::StrCat("'", key, "' is no checksum"));
    }
    return value;
  }

 private:
  const Json& Of(const Json& parent, const char* key, bool (Json::*is)() const noexcept) {
    if (parent.is_object() && parent.contains(key) && (parent[key].*is)()) return parent[key];
    Fail(absl::StrCat("'", key, "' is missing, or of another type"));
    return none_;
  }

  const std::string name_;
  const Json none_;
  absl::Status status_;
};

CheckpointPart ReadPart(Reader& reader, const Json& json, size_t files) {
  CheckpointPart part;
  part.file = static_cast<int>(reader.Int(json, "file", kMaxShards));
  if (static_cast<size_t>(part.file) >= files) {
    reader.Fail(absl::StrCat("a part is in file ", part.file, " of ", files));
  }
  part.checksum = reader.Hash(json, "checksum");
  if (!json.is_object() || !json.contains("slice")) return part;
  const Json& slice = reader.Object(json, "slice");
  const auto axis = static_cast<int>(reader.Int(slice, "axis", kMaxRank));
  part.shards = static_cast<int>(reader.Int(slice, "shards", kMaxShards));
  part.shard = static_cast<int>(reader.Int(slice, "shard", kMaxShards));
  part.row_shards = static_cast<int>(reader.Int(slice, "row_shards", kMaxShards));
  part.row_shard = static_cast<int>(reader.Int(slice, "row_shard", kMaxShards));
  const int64_t blocks = reader.Int(slice, "blocks", kMaxDim);
  if (part.shards > 1) part.sharding = AxisSharding::Split(axis, blocks);
  return part;
}

// InvalidArgument unless the parts make up the tensor, once.
absl::Status CheckParts(const CheckpointTensor& tensor) {
  const auto cut = [](const CheckpointPart& part) {
    return std::make_tuple(part.sharding.axis, part.sharding.blocks, part.shards, part.row_shards);
  };
  std::set<std::pair<int, int>> places;
  std::set<int> files;
  int64_t elements = 0;
  for (const CheckpointPart& part : tensor.parts) {
    WEFT_ASSIGN_OR_RETURN(const VariableShard shard, ShardOf(tensor, part));
    const bool is_new = places.insert({part.shard, part.row_shard}).second;
    if (!is_new || !files.insert(part.file).second || cut(part) != cut(tensor.parts.front())) {
      return absl::InvalidArgumentError("its parts do not go together");
    }
    // Different places of one cut: so the sum is at most that of the whole.
    elements += shard.local_shape.num_elements();
  }
  if (elements == tensor.shape.num_elements() && !tensor.parts.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("its parts have ", elements, " elements of ", tensor.shape.num_elements()));
}

CheckpointTensor ReadTensor(Reader& reader, const Json& json, size_t files) {
  CheckpointTensor tensor;
  tensor.name = reader.String(json, "name");
  const std::string dtype = reader.String(json, "dtype");
  const std::optional<DType> known = ParseDType(dtype);
  if (known.has_value() && DTypeBits(*known) > 0) {
    tensor.dtype = *known;
  } else {
    reader.Fail(absl::StrCat("tensor '", tensor.name, "' is of type '", dtype, "'"));
  }
  std::vector<int64_t> dims;
  for (const Json& dim : reader.Array(json, "shape")) {
    const bool good = dim.is_number_unsigned() && dim.get<uint64_t>() <= uint64_t{kMaxDim};
    if (!good) reader.Fail(absl::StrCat("tensor '", tensor.name, "' has a bad shape"));
    dims.push_back(good ? dim.get<int64_t>() : 0);
  }
  auto shape = Shape::Create(dims);
  if (!shape.ok()) {
    reader.Fail(absl::StrCat("tensor '", tensor.name, "': ", shape.status().message()));
    return tensor;
  }
  tensor.shape = *std::move(shape);
  tensor.trainable =
      json.is_object() && json.contains("trainable") && reader.Bool(json, "trainable");
  if (json.is_object() && json.contains("slot_of")) tensor.slot_of = reader.String(json, "slot_of");
  for (const Json& part : reader.Array(json, "parts")) {
    tensor.parts.push_back(ReadPart(reader, part, files));
  }
  if (!reader.status().ok()) return tensor;
  if (const absl::Status parts = CheckParts(tensor); !parts.ok()) {
    reader.Fail(absl::StrCat("tensor '", tensor.name, "': ", parts.message()));
  }
  return tensor;
}

// Older programs wrote none.
void ReadParameters(Reader& reader, const Json& json, CheckpointJob& job) {
  if (!json.is_object() || !json.contains("parameters")) return;
  const Json& parameters = reader.Object(json, "parameters");
  for (const Json& name : reader.Array(parameters, "trained")) {
    if (!name.is_string()) reader.Fail("the name of a parameter is no text");
    job.trained.push_back(name.is_string() ? name.get<std::string>() : std::string());
  }
  const Json& untrained = reader.Object(parameters, "not_trained");
  for (const auto& [name, reason] : untrained.items()) {
    if (!reason.is_string()) reader.Fail(absl::StrCat("parameter '", name, "' has no reason"));
    job.untrained[name] = reason.is_string() ? reason.get<std::string>() : std::string();
  }
}

// Older programs wrote none.
void ReadFlagFiles(Reader& reader, const Json& json, FlagRecord& flags) {
  if (!json.is_object() || !json.contains("flag_files")) return;
  const Json& files = reader.Object(json, "flag_files");
  for (const auto& [flag, content] : files.items()) {
    if (!flags.contains(flag)) reader.Fail(absl::StrCat("flag '", flag, "' has a file alone"));
    flags[flag].content = reader.Hash(files, flag.c_str());
  }
}

// Texts, from which lists tell where one value ends. Older programs wrote no lists.
FlagRecord ReadFlags(Reader& reader, const Json& json) {
  FlagRecord flags;
  const Json& texts = reader.Object(json, "flags");
  for (const auto& [flag, value] : texts.items()) {
    if (!value.is_string()) reader.Fail(absl::StrCat("flag '", flag, "' is no text"));
    flags[flag] =
        FlagValues::OfJoined(value.is_string() ? value.get<std::string>() : std::string());
  }
  if (!json.is_object() || !json.contains("flag_lists")) return flags;
  const Json& lists = reader.Object(json, "flag_lists");
  for (const auto& [flag, list] : lists.items()) {
    std::vector<std::string> values;
    for (const Json& value : list) {
      if (value.is_string()) values.push_back(value.get<std::string>());
    }
    const FlagValues exact(std::move(values));
    const bool fits = list.is_array() && list.size() == exact.values.size() &&
                      flags.contains(flag) && exact.Text() == flags[flag].Text();
    if (!fits) reader.Fail(absl::StrCat("the list of flag '", flag, "' is not what its text has"));
    flags[flag] = exact;
  }
  return flags;
}

// A text each, which older programs read too.
OrderedJson FlagTexts(const FlagRecord& flags) {
  OrderedJson texts = OrderedJson::object();
  for (const auto& [flag, values] : flags) texts[flag] = values.Text();
  return texts;
}

// The values of flags whose text does not tell them.
OrderedJson FlagLists(const FlagRecord& flags) {
  OrderedJson lists = OrderedJson::object();
  for (const auto& [flag, values] : flags) {
    const bool tells = values.is_joined || values.Text().find(',') == std::string::npos;
    if (!tells) lists[flag] = values.values;
  }
  return lists;
}

// What is in the files that flags name.
OrderedJson FlagFiles(const FlagRecord& flags) {
  OrderedJson files = OrderedJson::object();
  for (const auto& [flag, values] : flags) {
    if (values.content.has_value()) files[flag] = Hex(*values.content);
  }
  return files;
}

CheckpointJob ReadJob(Reader& reader, const Json& json) {
  CheckpointJob job;
  const Json& model = reader.Object(json, "model");
  job.model_checksum = reader.Hash(model, "file_checksum");
  job.weights_checksum = reader.Hash(model, "weights_checksum");
  job.data = reader.Object(json, "data").dump(-1, ' ', false, Json::error_handler_t::replace);
  job.steps_per_epoch = reader.Int(reader.Object(json, "position"), "steps_per_epoch", kMaxStep);
  job.seed = reader.Unsigned(reader.Object(json, "random"), "seed");
  job.flags = ReadFlags(reader, json);
  ReadFlagFiles(reader, json, job.flags);
  job.workers = static_cast<int>(reader.Int(json, "workers", kMaxShards));
  job.plan = reader.String(json, "plan");
  ReadParameters(reader, json, job);
  return job;
}

CheckpointFile ReadFile(Reader& reader, const Json& json) {
  CheckpointFile file;
  file.name = reader.String(json, "name");
  if (file.name.empty() || file.name.find('/') != std::string::npos) {
    reader.Fail(absl::StrCat("a file is called '", file.name, "'"));
  }
  file.bytes = reader.Int(json, "bytes", kMaxFileBytes);
  file.checksum = reader.Hash(json, "checksum");
  return file;
}

// The text without its checksum; nothing when that is not what it should be.
std::optional<std::string> Body(const std::string& text) {
  const size_t end = text.rfind(kChecksumKey);
  if (end == std::string::npos) return std::nullopt;
  std::string body = text.substr(0, end);
  if (text.substr(end) != Tail(body)) return std::nullopt;
  return body;
}

}  // namespace

const CheckpointTensor* CheckpointIndex::Find(const std::string& name) const {
  for (const CheckpointTensor& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

int64_t CheckpointIndex::bytes() const {
  int64_t sum = 0;
  for (const CheckpointFile& file : files) sum += file.bytes;
  return sum;
}

std::string CheckpointIndex::ToJson() const {
  std::vector<std::string> lines;
  const auto add = [&lines](const char* key, const std::string& text) {
    lines.push_back(absl::StrCat("\"", key, "\": ", text));
  };
  const auto list = [](const std::vector<std::string>& entries) {
    return entries.empty() ? "[]" : absl::StrCat("[\n ", absl::StrJoin(entries, ",\n "), "\n]");
  };
  add("format", Text(kFormat));
  add("version", absl::StrCat(kFormatVersion));
  add("step", absl::StrCat(step));
  const int64_t epoch_steps = std::max<int64_t>(job.steps_per_epoch, 1);
  add("position", Text({{"epoch", step / epoch_steps},
                        {"step_in_epoch", step % epoch_steps},
                        {"steps_per_epoch", job.steps_per_epoch}}));
  add("random",
      Text({{"seed", job.seed}, {"step", step}, {"state", "a function of seed and step"}}));
  add("model", Text({{"file_checksum", Hex(job.model_checksum)},
                     {"weights_checksum", Hex(job.weights_checksum)}}));
  add("data", job.data.empty() ? "{}" : job.data);
  add("flags", Text(FlagTexts(job.flags)));
  if (const OrderedJson lists = FlagLists(job.flags); !lists.empty())
    add("flag_lists", Text(lists));
  if (const OrderedJson in = FlagFiles(job.flags); !in.empty()) add("flag_files", Text(in));
  add("workers", absl::StrCat(job.workers));
  add("plan", Text(job.plan));
  add("parameters",
      Text({{"trained", job.trained.empty() ? OrderedJson::array() : OrderedJson(job.trained)},
            {"not_trained",
             job.untrained.empty() ? OrderedJson::object() : OrderedJson(job.untrained)}}));
  add("loop", Text(loop.empty() ? OrderedJson::object() : OrderedJson(loop)));
  std::vector<std::string> entries;
  for (const CheckpointFile& file : files) {
    entries.push_back(
        Text({{"name", file.name}, {"bytes", file.bytes}, {"checksum", Hex(file.checksum)}}));
  }
  add("files", list(entries));
  entries.clear();
  for (const CheckpointTensor& tensor : tensors) entries.push_back(Text(TensorJson(tensor)));
  add("tensors", list(entries));
  const std::string body = absl::StrCat("{\n", absl::StrJoin(lines, ",\n"));
  return body + Tail(body);
}

absl::StatusOr<CheckpointIndex> CheckpointIndex::FromJson(const std::string& text,
                                                          const std::string& name) {
  Reader reader(name);
  const std::optional<std::string> body = Body(text);
  if (!body.has_value()) {
    reader.Fail("its text does not have the checksum at its end");
    return reader.status();
  }
  if (const absl::Status within = CheckJsonLimits(*body, kIndexLimits); !within.ok()) {
    reader.Fail(absl::StrCat("it is ", within.message()));
    return reader.status();
  }
  const Json json = Json::parse(*body + "}", nullptr, /*allow_exceptions=*/false);
  const int64_t version = reader.Int(json, "version");
  if (reader.String(json, "format") != kFormat) reader.Fail("it is no index of a checkpoint");
  if (reader.status().ok() && version != kFormatVersion) {
    return absl::UnimplementedError(absl::StrCat("\"", absl::Utf8SafeCEscape(name),
                                                 "\" has format version ", version,
                                                 ", this program reads ", kFormatVersion));
  }
  CheckpointIndex index;
  index.step = reader.Int(json, "step", kMaxStep);
  index.job = ReadJob(reader, json);
  const Json& loop = reader.Object(json, "loop");
  for (const auto& [key, value] : loop.items()) {
    if (!value.is_number()) reader.Fail(absl::StrCat("'", key, "' is no number"));
    index.loop[key] = value.is_number() ? value.get<double>() : 0;
  }
  const Json& files = reader.Array(json, "files");
  if (files.size() > static_cast<size_t>(kMaxShards))
    reader.Fail("it has more than a million files");
  std::set<std::string> names;
  for (const Json& file : files) {
    if (!reader.status().ok()) break;
    index.files.push_back(ReadFile(reader, file));
    if (!names.insert(index.files.back().name).second) {
      reader.Fail(absl::StrCat("the file '", index.files.back().name, "' is there twice"));
    }
  }
  names.clear();
  for (const Json& tensor : reader.Array(json, "tensors")) {
    if (!reader.status().ok()) break;
    index.tensors.push_back(ReadTensor(reader, tensor, index.files.size()));
    if (!names.insert(index.tensors.back().name).second) reader.Fail("a tensor is there twice");
  }
  if (!reader.status().ok()) return reader.status();
  return index;
}

absl::StatusOr<VariableShard> ShardOf(const CheckpointTensor& tensor, const CheckpointPart& part) {
  VariableShard shard;
  shard.name = tensor.name;
  shard.dtype = tensor.dtype;
  shard.global_shape = tensor.shape;
  shard.tensor_sharding = part.sharding;
  shard.tensor_shards = part.shards;
  shard.tensor_index = part.shard;
  shard.data_shards = part.row_shards;
  shard.data_index = part.row_shard;
  WEFT_ASSIGN_OR_RETURN(shard.local_shape, ShapeOfCut(shard));
  return shard;
}

}  // namespace weft
