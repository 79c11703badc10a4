#include "onnx_import/exporter.h"

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "onnx_import/codec/byte_rope.h"
#include "onnx_import/codec/quote.h"
#include "onnx_import/codec/tensor_codec.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/codec/wire_reader.h"
#include "platform/mapped_pages.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Field numbers of wire.proto.
constexpr int kModelGraph = 7;
constexpr int kModelTrainingInfo = 20;
constexpr int kTrainingInitialization = 1;
constexpr int kTrainingAlgorithm = 2;
constexpr int kGraphNode = 1;
constexpr int kGraphInitializer = 5;
constexpr int kNodeAttribute = 5;
constexpr int kAttributeTensor = 5;
constexpr int kAttributeGraph = 6;
constexpr int kAttributeTensors = 10;
constexpr int kAttributeGraphs = 11;

constexpr int64_t kExternalAlignment = 4096;

// Trained tensors by their place in a graph.
struct Replacements {
  std::map<int, const Tensor*> initializers;
  std::map<int, const Tensor*> constant_nodes;
};

struct ModelReplacements {
  Replacements graph;
  Replacements algorithm;  // of the one training_info that has updates
};

absl::StatusOr<ModelReplacements> Locate(const ImportedModel& model,
                                         const std::map<std::string, Tensor>& trained) {
  std::map<std::string, const ImportedParameter*> parameters;
  for (const ImportedParameter& parameter : model.parameters) {
    parameters[parameter.name] = &parameter;
  }
  ModelReplacements replacements;
  for (const auto& [name, tensor] : trained) {
    const auto found = parameters.find(name);
    if (found == parameters.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(model.file.Label(), " has no float tensor ", Quoted(name), " to replace"));
    }
    const ImportedParameter& parameter = *found->second;
    if (tensor.dtype() != parameter.dtype || !(tensor.shape() == parameter.shape)) {
      return absl::InvalidArgumentError(
          absl::StrCat(model.file.Label(), ": tensor ", Quoted(name), " is ",
                       std::string(DTypeName(parameter.dtype)), parameter.shape.ToString(),
                       ", which cannot be replaced by ", std::string(DTypeName(tensor.dtype())),
                       tensor.shape().ToString()));
    }
    const bool in_algorithm = parameter.storage == ParameterStorage::kAlgorithmInitializer;
    Replacements& graph = in_algorithm ? replacements.algorithm : replacements.graph;
    const bool constant = parameter.storage == ParameterStorage::kConstantNode;
    (constant ? graph.constant_nodes : graph.initializers)[parameter.index] = &tensor;
  }
  return replacements;
}

// Whether a TensorProto says that its data is external, as protobuf reads it: the last known value.
bool IsExternal(std::string_view bytes) {
  WireReader reader(bytes);
  bool external = false;
  while (!reader.AtEnd()) {
    const std::optional<WireField> field = reader.Next();
    if (!field) break;
    if (field->number != onnx::TensorProto::kDataLocationFieldNumber) continue;
    const int value = static_cast<int>(VarintOf(*field));
    if (onnx::TensorProto::DataLocation_IsValid(value)) {
      external = value == onnx::TensorProto::EXTERNAL;
    }
  }
  return external;
}

bool HasField(std::string_view bytes, int number) {
  WireReader reader(bytes);
  while (!reader.AtEnd()) {
    const std::optional<WireField> field = reader.Next();
    if (!field) break;
    if (field->number == number) return true;
  }
  return false;
}

// The message with `tensor` as its raw data, in the place that its field number has. `proto` has
// none, and serializes its fields in the order of their numbers.
void AppendWithRawData(const onnx::TensorProto& proto, const Tensor& tensor, ByteRope& out) {
  const std::string rest = proto.SerializeAsString();
  WireReader reader(rest);
  size_t place = 0;
  while (!reader.AtEnd()) {
    const std::optional<WireField> field = reader.Next();
    if (!field || field->number > onnx::TensorProto::kRawDataFieldNumber) break;
    place = reader.position();
  }
  const std::string_view bytes(static_cast<const char*>(tensor.raw_data()), tensor.bytes());
  out.AppendCopy(std::string_view(rest).substr(0, place));
  out.AppendFieldHeader(onnx::TensorProto::kRawDataFieldNumber, bytes.size());
  out.AppendShared(bytes, tensor.buffer());
  out.AppendCopy(std::string_view(rest).substr(place));
}

// Copies a model field by field, with other payloads in some tensors. Payloads, and what does not
// change, are referred to. The bytes were checked when the model was loaded; an error here is
// InternalError.
class Rewriter {
 public:
  Rewriter(const ImportedModel& model, const ModelReplacements& replacements, bool inline_external)
      : model_(model), replacements_(replacements), inline_external_(inline_external) {}

  absl::Status Model(std::string_view bytes, ByteRope& out);

  int moved() const { return moved_; }
  std::vector<ExportedModel::Piece>& external() { return external_; }
  void set_external_name(const std::string& name) { external_name_ = name; }

 private:
  // Calls `rewrite(field, payload)` for each field with bytes; it returns false to copy the field.
  template <typename Rewrite>
  absl::Status Fields(std::string_view bytes, ByteRope& out, Rewrite rewrite);

  // `replacements`: of this graph itself, null for none.
  absl::Status Graph(std::string_view bytes, const Replacements* replacements, ByteRope& out);
  absl::Status TrainingInfo(std::string_view bytes, ByteRope& out);
  absl::Status Node(std::string_view bytes, const Tensor* trained, ByteRope& out);
  absl::Status Attribute(std::string_view bytes, const Tensor* trained, ByteRope& out);
  absl::Status TensorField(std::string_view bytes, const Tensor* trained, ByteRope& out);
  // Whether an edited file has left the payload where the original has it: in the model itself.
  bool IsOwn(const onnx::TensorProto& proto) const;
  // The tensor as a message without its external data, which moves to the model or to a new file.
  absl::Status MoveExternal(const Tensor* trained, onnx::TensorProto& proto, ByteRope& out);

  const ImportedModel& model_;
  const ModelReplacements& replacements_;
  const bool inline_external_;
  std::string external_name_;
  std::vector<ExportedModel::Piece> external_;
  int64_t external_size_ = 0;
  int moved_ = 0;
};

template <typename Rewrite>
absl::Status Rewriter::Fields(std::string_view bytes, ByteRope& out, Rewrite rewrite) {
  WireReader reader(bytes);
  while (!reader.AtEnd()) {
    const std::optional<WireField> field = reader.Next();
    if (!field) return absl::InternalError(absl::StrCat("the model changed: ", reader.error()));
    ByteRope payload;
    absl::StatusOr<bool> rewritten = false;
    if (field->type == WireType::kBytes) rewritten = rewrite(*field, payload);
    WEFT_RETURN_IF_ERROR(rewritten.status());
    if (*rewritten) {
      out.AppendField(field->number, std::move(payload));
    } else {
      out.AppendView(field->whole);
    }
  }
  return absl::OkStatus();
}

// What a callback of Fields returns after it has rewritten the payload.
absl::StatusOr<bool> Done(const absl::Status& status) {
  if (!status.ok()) return status;
  return true;
}

absl::Status Rewriter::Model(std::string_view bytes, ByteRope& out) {
  return Fields(bytes, out, [this](const WireField& field, ByteRope& payload) {
    if (field.number == kModelTrainingInfo) return Done(TrainingInfo(field.payload, payload));
    if (field.number != kModelGraph) return absl::StatusOr<bool>(false);
    return Done(Graph(field.payload, &replacements_.graph, payload));
  });
}

// Only a training_info with updates has trained tensors.
absl::Status Rewriter::TrainingInfo(std::string_view bytes, ByteRope& out) {
  onnx::TrainingInfoProto info;
  if (!info.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InternalError("the model changed: a training_info cannot be read any more");
  }
  const Replacements* const trained =
      info.update_binding_size() > 0 ? &replacements_.algorithm : nullptr;
  return Fields(bytes, out, [&](const WireField& field, ByteRope& payload) {
    switch (field.number) {
      case kTrainingInitialization:
        return Done(Graph(field.payload, nullptr, payload));
      case kTrainingAlgorithm:
        return Done(Graph(field.payload, trained, payload));
      default:
        return absl::StatusOr<bool>(false);
    }
  });
}

absl::Status Rewriter::Graph(std::string_view bytes, const Replacements* replacements,
                             ByteRope& out) {
  static const Replacements kNone;
  const Replacements& trained = replacements != nullptr ? *replacements : kNone;
  const auto find = [](const std::map<int, const Tensor*>& tensors, int index) {
    const auto found = tensors.find(index);
    return found != tensors.end() ? found->second : nullptr;
  };
  int node = 0;
  int initializer = 0;
  return Fields(bytes, out, [&](const WireField& field, ByteRope& payload) {
    if (field.number == kGraphNode) {
      return Done(Node(field.payload, find(trained.constant_nodes, node++), payload));
    }
    if (field.number == kGraphInitializer) {
      const Tensor* tensor = find(trained.initializers, initializer++);
      return Done(TensorField(field.payload, tensor, payload));
    }
    return absl::StatusOr<bool>(false);
  });
}

absl::Status Rewriter::Node(std::string_view bytes, const Tensor* trained, ByteRope& out) {
  return Fields(bytes, out, [&](const WireField& field, ByteRope& payload) {
    if (field.number != kNodeAttribute) return absl::StatusOr<bool>(false);
    return Done(Attribute(field.payload, trained, payload));
  });
}

absl::Status Rewriter::Attribute(std::string_view bytes, const Tensor* trained, ByteRope& out) {
  // A Constant node has one attribute. Its value is a tensor, or a float or a list of them.
  if (trained != nullptr && !HasField(bytes, kAttributeTensor)) {
    onnx::AttributeProto attribute;
    if (!attribute.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      return absl::InternalError("the model changed: an attribute cannot be read any more");
    }
    const std::span<const float> values = trained->data<float>();
    if (trained->shape().rank() == 0) {
      attribute.set_f(values[0]);
    } else {
      attribute.mutable_floats()->Assign(values.begin(), values.end());
    }
    out.AppendCopy(attribute.SerializeAsString());
    return absl::OkStatus();
  }
  return Fields(bytes, out, [&](const WireField& field, ByteRope& payload) {
    switch (field.number) {
      case kAttributeTensor:
      case kAttributeTensors:
        return Done(TensorField(field.payload, trained, payload));
      case kAttributeGraph:
      case kAttributeGraphs:
        return Done(Graph(field.payload, nullptr, payload));
      default:
        return absl::StatusOr<bool>(false);
    }
  });
}

absl::Status Rewriter::TensorField(std::string_view bytes, const Tensor* trained, ByteRope& out) {
  const bool external = IsExternal(bytes);
  if (!external && trained == nullptr) {
    out.AppendView(bytes);
    return absl::OkStatus();
  }
  // Raw data is most of a tensor, and replaced: it is not even read.
  std::string rest;
  bool has_raw_data = false;
  WireReader reader(bytes);
  while (!reader.AtEnd()) {
    const std::optional<WireField> field = reader.Next();
    if (!field) return absl::InternalError(absl::StrCat("the model changed: ", reader.error()));
    const bool is_raw_data = field->number == onnx::TensorProto::kRawDataFieldNumber;
    has_raw_data = has_raw_data || is_raw_data;
    if (!is_raw_data) rest.append(field->whole);
  }
  onnx::TensorProto proto;
  if (!proto.ParseFromString(rest)) {
    return absl::InternalError("the model changed: a tensor cannot be read any more");
  }
  if (external) {
    const absl::Status status = MoveExternal(trained, proto, out);
    if (status.ok()) return status;
    return Annotate(status, absl::StrCat(model_.file.Label(), ": tensor ", Quoted(proto.name())));
  }
  if (has_raw_data) {
    AppendWithRawData(proto, *trained, out);
    return absl::OkStatus();
  }
  ReplacePayload(*trained, proto);
  out.AppendCopy(proto.SerializeAsString());
  return absl::OkStatus();
}

bool Rewriter::IsOwn(const onnx::TensorProto& proto) const {
  if (!model_.file.is_edited()) return false;
  for (const onnx::StringStringEntryProto& entry : proto.external_data()) {
    if (entry.key() == "location") return entry.value() == model_.file.own_name();
  }
  return false;
}

absl::Status Rewriter::MoveExternal(const Tensor* trained, onnx::TensorProto& proto,
                                    ByteRope& out) {
  Tensor tensor;
  if (trained != nullptr) {
    tensor = *trained;
  } else {
    WEFT_ASSIGN_OR_RETURN(tensor, DecodeTensor(proto, {nullptr, model_.file.external()}));
  }
  if (!inline_external_ || !IsOwn(proto)) ++moved_;
  proto.clear_external_data();
  if (inline_external_) {
    proto.clear_data_location();
    AppendWithRawData(proto, tensor, out);
    return absl::OkStatus();
  }
  const auto add = [&proto](const char* key, const std::string& value) {
    onnx::StringStringEntryProto& entry = *proto.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  };
  add("location", external_name_);
  add("offset", absl::StrCat(external_size_));
  add("length", absl::StrCat(tensor.bytes()));
  external_.push_back({external_size_, tensor});
  const int64_t end = external_size_ + static_cast<int64_t>(tensor.bytes());
  external_size_ = (end + kExternalAlignment - 1) / kExternalAlignment * kExternalAlignment;
  out.AppendCopy(proto.SerializeAsString());
  return absl::OkStatus();
}

// Bytes of external data that the graph and its subgraphs refer to.
size_t ExternalBytes(const onnx::GraphProto& graph);

size_t ExternalBytes(const onnx::TensorProto& tensor) {
  if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return 0;
  const absl::StatusOr<TensorHeader> header = DecodeTensorHeader(tensor);
  return header.ok() ? header->bytes : 0;
}

size_t ExternalBytes(const onnx::AttributeProto& attribute) {
  size_t bytes = attribute.has_t() ? ExternalBytes(attribute.t()) : 0;
  for (const onnx::TensorProto& tensor : attribute.tensors()) bytes += ExternalBytes(tensor);
  if (attribute.has_g()) bytes += ExternalBytes(attribute.g());
  for (const onnx::GraphProto& graph : attribute.graphs()) bytes += ExternalBytes(graph);
  return bytes;
}

size_t ExternalBytes(const onnx::GraphProto& graph) {
  size_t bytes = 0;
  for (const onnx::TensorProto& tensor : graph.initializer()) bytes += ExternalBytes(tensor);
  for (const onnx::NodeProto& node : graph.node()) {
    for (const onnx::AttributeProto& attribute : node.attribute())
      bytes += ExternalBytes(attribute);
  }
  return bytes;
}

// Of the whole file.
size_t ExternalBytes(const ModelFile& file) {
  size_t bytes = ExternalBytes(file.proto()->graph());
  for (const onnx::TrainingInfoProto& info : file.proto()->training_info()) {
    bytes += ExternalBytes(info.initialization()) + ExternalBytes(info.algorithm());
  }
  return bytes;
}

bool FitsOneFile(const ModelFile& file, const ExportOptions& options) {
  return file.bytes().size() + ExternalBytes(file) <= options.max_file_bytes;
}

// What lies in a mapped file does not stay in memory.
absl::Status AppendWindows(std::string_view bytes, WritableFile& file) {
  absl::Status status;
  ForEachMappedWindow(std::as_bytes(std::span(bytes)), [&](std::span<const std::byte> part) {
    if (!status.ok()) return;
    status = file.Append({reinterpret_cast<const char*>(part.data()), part.size()});
  });
  return status;
}

absl::Status WriteRope(FileSystem& file_system, const std::string& path, const ByteRope& rope) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                        file_system.OpenReplacement(path));
  for (size_t i = 0; i < rope.pieces(); ++i) {
    WEFT_RETURN_IF_ERROR(AppendWindows(rope.piece(i), *file));
  }
  return file->Close();
}

absl::Status WritePieces(FileSystem& file_system, const std::string& path,
                         const std::vector<ExportedModel::Piece>& pieces) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, file_system.OpenEmpty(path));
  int64_t written = 0;
  for (const ExportedModel::Piece& piece : pieces) {
    WEFT_RETURN_IF_ERROR(file->Append(std::string(piece.offset - written, '\0')));
    const char* data = static_cast<const char*>(piece.tensor.raw_data());
    WEFT_RETURN_IF_ERROR(AppendWindows(std::string_view(data, piece.tensor.bytes()), *file));
    written = piece.offset + static_cast<int64_t>(piece.tensor.bytes());
  }
  return file->Close();
}

// As ExportTrained, but for ExportedModel::bytes, which `bytes` has. It refers to the model and to
// `trained`.
absl::StatusOr<ExportedModel> Export(const ImportedModel& model,
                                     const std::map<std::string, Tensor>& trained,
                                     const ExportOptions& options, ByteRope& bytes) {
  WEFT_ASSIGN_OR_RETURN(const ModelReplacements replacements, Locate(model, trained));
  const bool fits = FitsOneFile(model.file, options);
  Rewriter rewriter(model, replacements, /*inline_external=*/fits);
  rewriter.set_external_name(options.external_name);
  WEFT_RETURN_IF_ERROR(rewriter.Model(model.file.bytes(), bytes));
  ExportedModel exported;
  exported.external = std::move(rewriter.external());
  if (!exported.external.empty()) exported.external_name = options.external_name;
  if (rewriter.moved() > 0) {
    exported.note = absl::StrCat("external data of ", rewriter.moved(), " tensors is now in ",
                                 fits ? "the file itself" : Quoted(options.external_name));
  }
  return exported;
}

}  // namespace

bool HasDataBeside(const ModelFile& file, const ExportOptions& options) {
  return ExternalBytes(file) > 0 && !FitsOneFile(file, options);
}

absl::StatusOr<ExportedModel> ExportTrained(const ImportedModel& model,
                                            const std::map<std::string, Tensor>& trained,
                                            const ExportOptions& options) {
  ByteRope bytes;
  WEFT_ASSIGN_OR_RETURN(ExportedModel exported, Export(model, trained, options, bytes));
  exported.bytes = bytes.ToString();
  return exported;
}

absl::StatusOr<std::string> SaveTrained(FileSystem& file_system, const std::string& path,
                                        const ImportedModel& model,
                                        const std::map<std::string, Tensor>& trained,
                                        const ExportEdit& edit) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  ExportOptions options;
  const std::string stem = path.substr(folder.size());
  options.external_name = absl::StrCat(stem, ".data");
  for (int i = 1; file_system.Exists(absl::StrCat(folder, options.external_name)); ++i) {
    options.external_name = absl::StrCat(stem, ".", i, ".data");  // it may be the model's own
  }
  ByteRope bytes;
  WEFT_ASSIGN_OR_RETURN(const ExportedModel exported, Export(model, trained, options, bytes));
  std::string edited;
  if (edit != nullptr) {
    WEFT_ASSIGN_OR_RETURN(edited, edit(bytes.ToString()));
    bytes = ByteRope();
    bytes.AppendView(edited);
  }
  if (!exported.external.empty()) {
    WEFT_RETURN_IF_ERROR(
        WritePieces(file_system, absl::StrCat(folder, exported.external_name), exported.external));
  }
  WEFT_RETURN_IF_ERROR(WriteRope(file_system, path, bytes));
  return exported.note;
}

}  // namespace weft
