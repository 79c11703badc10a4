#include "executor/variables/safetensors.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "platform/status_macros.h"
#include "platform/text/json_limits.h"

namespace weft {
namespace {

using OrderedJson = nlohmann::ordered_json;
// Of headers that are read: those of a file of many tensors would be slow to search in their order.
using Json = nlohmann::json;

constexpr char kMetadata[] = "__metadata__";
constexpr size_t kLengthBytes = 8;
// A tensor's entry has lists in it, and nothing deeper.
constexpr int kHeaderDepth = 3;
constexpr int64_t kMaxHeaderValues = int64_t{1} << 21;
// The data begins at a multiple of it.
constexpr size_t kDataAlignment = 64;

struct NamedDType {
  DType dtype;
  const char* name;
};
constexpr std::array<NamedDType, 14> kDTypes = {{{DType::kFloat64, "F64"},
                                                 {DType::kFloat32, "F32"},
                                                 {DType::kFloat16, "F16"},
                                                 {DType::kBfloat16, "BF16"},
                                                 {DType::kInt64, "I64"},
                                                 {DType::kInt32, "I32"},
                                                 {DType::kInt16, "I16"},
                                                 {DType::kInt8, "I8"},
                                                 {DType::kUint64, "U64"},
                                                 {DType::kUint32, "U32"},
                                                 {DType::kUint16, "U16"},
                                                 {DType::kUint8, "U8"},
                                                 {DType::kBool, "BOOL"},
                                                 {DType::kFloat8E4M3Fn, "F8_E4M3"}}};

const char* NameOf(DType dtype) {
  for (const NamedDType& named : kDTypes) {
    if (named.dtype == dtype) return named.name;
  }
  return nullptr;
}

std::optional<DType> DTypeOfName(std::string_view name) {
  for (const NamedDType& named : kDTypes) {
    if (name == named.name) return named.dtype;
  }
  return std::nullopt;
}

std::string LengthText(uint64_t length) {
  std::string text;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    text.push_back(static_cast<char>((length >> (8 * i)) & 0xff));
  }
  return text;
}

uint64_t LengthOf(std::span<const std::byte> bytes) {
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  }
  return length;
}

// The header without its length; offsets count from the end of the header.
std::string HeaderText(const SafetensorsLayout& layout) {
  OrderedJson json = OrderedJson::object();
  if (!layout.metadata.empty()) json[kMetadata] = layout.metadata;
  for (const SafetensorsEntry& tensor : layout.tensors) {
    const std::vector<int64_t> dims(tensor.shape.dims().begin(), tensor.shape.dims().end());
    json[tensor.name] = {{"dtype", NameOf(tensor.dtype)},
                         {"shape", dims},
                         {"data_offsets", {tensor.offset, tensor.offset + tensor.bytes()}}};
  }
  std::string text = json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  const size_t whole = kLengthBytes + text.size();
  text.append((kDataAlignment - whole % kDataAlignment) % kDataAlignment, ' ');
  return text;
}

// Reads one file's header.
class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> file, const std::string& name)
      : file_(file), name_(name) {}

  absl::StatusOr<SafetensorsLayout> Read();

 private:
  absl::Status Damaged(const std::string& what) const {
    return absl::DataLossError(
        absl::StrCat("\"", absl::Utf8SafeCEscape(name_), "\" is damaged: ", what));
  }
  absl::StatusOr<Json> Parse(std::string_view header) const;
  absl::StatusOr<SafetensorsEntry> Entry(const std::string& tensor, const Json& json) const;
  // Checks that the tensors fill the data, and gives them their places in the file.
  absl::Status Place(int64_t data_begin, SafetensorsLayout& layout) const;

  const std::span<const std::byte> file_;
  const std::string& name_;
};

absl::StatusOr<Json> HeaderReader::Parse(std::string_view header) const {
  const absl::Status within =
      CheckJsonLimits(header, {kMaxSafetensorsHeaderBytes, kHeaderDepth, kMaxHeaderValues});
  if (!within.ok()) return Damaged(absl::StrCat("its header is ", within.message()));
  std::set<std::string> names;
  bool twice = false;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1) {
      twice = twice || !names.insert(parsed.get<std::string>()).second;
    }
    return true;
  };
  Json json = Json::parse(header.begin(), header.end(), watch, /*allow_exceptions=*/false);
  if (!json.is_object()) return Damaged("its header is not a JSON object");
  if (twice) return Damaged("its header has a tensor twice");
  return json;
}

absl::StatusOr<SafetensorsEntry> HeaderReader::Entry(const std::string& tensor,
                                                     const Json& json) const {
  const auto damaged = [&](const std::string& what) {
    return Damaged(absl::StrCat("tensor '", absl::Utf8SafeCEscape(tensor), "' ", what));
  };
  if (!json.is_object() || !json.contains("dtype") || !json["dtype"].is_string()) {
    return damaged("has no dtype");
  }
  SafetensorsEntry entry;
  entry.name = tensor;
  const std::string dtype = json["dtype"].get<std::string>();
  const std::optional<DType> known = DTypeOfName(dtype);
  if (!known.has_value()) {
    return damaged(absl::StrCat("is of type '", absl::Utf8SafeCEscape(dtype), "', unknown here"));
  }
  entry.dtype = *known;
  if (!json.contains("shape") || !json["shape"].is_array()) return damaged("has no shape");
  std::vector<int64_t> dims;
  for (const Json& dim : json["shape"]) {
    if (!dim.is_number_unsigned() || dim.get<uint64_t>() > static_cast<uint64_t>(kMaxDim)) {
      return damaged("has a shape that no tensor has");
    }
    dims.push_back(dim.get<int64_t>());
  }
  auto shape = Shape::Create(dims);
  if (!shape.ok()) return damaged(absl::StrCat("has a bad shape: ", shape.status().message()));
  entry.shape = *std::move(shape);
  const Json offsets = json.contains("data_offsets") ? json["data_offsets"] : Json();
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    return damaged("has no place in the data");
  }
  const uint64_t begin = offsets[0].get<uint64_t>();
  const uint64_t end = offsets[1].get<uint64_t>();
  // Before anything is multiplied: elements are at least a byte.
  const bool fits = begin <= end && end <= file_.size() &&
                    entry.shape.num_elements() <= static_cast<int64_t>(file_.size()) &&
                    static_cast<uint64_t>(entry.bytes()) == end - begin;
  if (!fits) {
    return damaged(absl::StrCat("of shape ", entry.shape.ToString(), " is said to lie from byte ",
                                begin, " to ", end, " of ", file_.size()));
  }
  entry.offset = static_cast<int64_t>(begin);
  return entry;
}

absl::Status HeaderReader::Place(int64_t data_begin, SafetensorsLayout& layout) const {
  std::stable_sort(layout.tensors.begin(), layout.tensors.end(),
                   [](const auto& a, const auto& b) { return a.offset < b.offset; });
  int64_t end = 0;
  for (SafetensorsEntry& tensor : layout.tensors) {
    // Empty ones may lie anywhere.
    if (tensor.bytes() > 0 && tensor.offset != end) {
      return Damaged(absl::StrCat("tensor '", absl::Utf8SafeCEscape(tensor.name),
                                  "' begins at byte ", tensor.offset,
                                  " of the data, the one before it ends at ", end));
    }
    if (tensor.bytes() > 0) end += tensor.bytes();
    tensor.offset += data_begin;
  }
  if (data_begin + end != layout.file_bytes) {
    return Damaged(absl::StrCat("it has ", layout.file_bytes, " bytes, its tensors end at byte ",
                                data_begin + end));
  }
  return absl::OkStatus();
}

absl::StatusOr<SafetensorsLayout> HeaderReader::Read() {
  if (file_.size() < kLengthBytes) {
    return Damaged(absl::StrCat("it has ", file_.size(), " bytes and no header"));
  }
  const uint64_t length = LengthOf(file_);
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeaderBytes) ||
      length > file_.size() - kLengthBytes) {
    return Damaged(absl::StrCat("its header is said to have ", length, " bytes, of ", file_.size(),
                                " in the file and ", kMaxSafetensorsHeaderBytes, " that are read"));
  }
  SafetensorsLayout layout;
  layout.header.assign(reinterpret_cast<const char*>(file_.data()), kLengthBytes + length);
  layout.file_bytes = static_cast<int64_t>(file_.size());
  WEFT_ASSIGN_OR_RETURN(const Json json,
                        Parse(std::string_view(layout.header).substr(kLengthBytes)));
  for (const auto& [tensor, entry] : json.items()) {
    if (tensor != kMetadata) {
      WEFT_ASSIGN_OR_RETURN(layout.tensors.emplace_back(), Entry(tensor, entry));
      continue;
    }
    if (!entry.is_object()) return Damaged("its metadata is no JSON object");
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) return Damaged("its metadata is not text alone");
      layout.metadata[key] = value.get<std::string>();
    }
  }
  WEFT_RETURN_IF_ERROR(Place(static_cast<int64_t>(layout.header.size()), layout));
  return layout;
}

}  // namespace

absl::StatusOr<SafetensorsLayout> LayOutSafetensors(std::vector<SafetensorsEntry> tensors,
                                                    std::map<std::string, std::string> metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    const int left = DTypeBits(a.dtype), right = DTypeBits(b.dtype);
    return left != right ? left > right : a.name < b.name;
  });
  SafetensorsLayout layout;
  layout.metadata = std::move(metadata);
  std::set<std::string> names = {kMetadata};
  int64_t end = 0;
  for (SafetensorsEntry& tensor : tensors) {
    if (NameOf(tensor.dtype) == nullptr) {
      return absl::UnimplementedError(absl::StrCat("variable '", tensor.name, "' is ",
                                                   std::string(DTypeName(tensor.dtype)),
                                                   ", which safetensors files cannot hold"));
    }
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("a safetensors file cannot hold two tensors '", tensor.name, "'"));
    }
    tensor.offset = end;
    end += tensor.bytes();
  }
  layout.tensors = std::move(tensors);
  const std::string text = HeaderText(layout);
  if (static_cast<int64_t>(text.size()) > kMaxSafetensorsHeaderBytes) {
    return absl::UnimplementedError(absl::StrCat("a safetensors header of ", text.size(),
                                                 " bytes; the most is ",
                                                 kMaxSafetensorsHeaderBytes));
  }
  layout.header = LengthText(text.size()) + text;
  for (SafetensorsEntry& tensor : layout.tensors) {
    tensor.offset += static_cast<int64_t>(layout.header.size());
  }
  layout.file_bytes = static_cast<int64_t>(layout.header.size()) + end;
  return layout;
}

absl::StatusOr<SafetensorsLayout> ParseSafetensors(std::span<const std::byte> file,
                                                   const std::string& name) {
  return HeaderReader(file, name).Read();
}

}  // namespace weft
