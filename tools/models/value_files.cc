#include "tools/models/value_files.h"

#include "absl/strings/str_cat.h"
#include "onnx_import/tensor_proto.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "tools/reports/map_json.h"
#include "training/data/data_file.h"

namespace weft {
namespace {

std::string FileNameOf(const std::string& value) {
  std::string name = value;
  for (char& c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '/' || byte < 0x20 || byte == 0x7f) c = '_';
  }
  if (name.empty() || name.front() == '.') name.insert(name.begin(), '_');
  return name;
}

}  // namespace

absl::StatusOr<std::string> WriteTensorFile(FileSystem& files, const std::string& folder,
                                            const std::string& name, const Tensor& tensor) {
  Tensor stored = tensor;
  if (stored.dtype() == DType::kBfloat16) {
    WEFT_ASSIGN_OR_RETURN(stored, CastTensor(tensor, DType::kFloat32));
  }
  WEFT_ASSIGN_OR_RETURN(const std::string bytes, ToNpy(stored));
  std::string path = absl::StrCat(folder, "/", FileNameOf(name), ".npy");
  WEFT_RETURN_IF_ERROR(files.WriteFileAtomically(path, bytes));
  return path;
}

absl::StatusOr<std::string> WriteValueFile(FileSystem& files, const std::string& folder,
                                           const std::string& name, const Value& value) {
  if (value.kind() == ValueKind::kTensor) {
    absl::StatusOr<std::string> path = WriteTensorFile(files, folder, name, value.tensor());
    if (!absl::IsUnimplemented(path.status())) return path;
  }
  std::string path = absl::StrCat(folder, "/", FileNameOf(name), ".pb");
  WEFT_RETURN_IF_ERROR(files.WriteFileAtomically(path, SerializeValue(name, value)));
  return path;
}

absl::StatusOr<std::string> WriteMapFile(FileSystem& files, const std::string& folder,
                                         const std::string& name, const Value& value,
                                         const MapType& type) {
  WEFT_ASSIGN_OR_RETURN(const nlohmann::ordered_json json, MapToJson(value, type));
  std::string path = absl::StrCat(folder, "/", FileNameOf(name), ".json");
  WEFT_RETURN_IF_ERROR(files.WriteFileAtomically(
      path, json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"));
  return path;
}

absl::StatusOr<Value> ReadMapFile(FileSystem& files, const std::string& path,
                                  const std::string& input, const MapType& type) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, files.ReadFile(path));
  absl::StatusOr<Value> value = MapFromJson(text, type);
  if (value.ok()) return value;
  return Annotate(value.status(), absl::StrCat("data file '", path, "', for input '", input,
                                               "', which is ", type.ToString(), ", as JSON"));
}

}  // namespace weft
