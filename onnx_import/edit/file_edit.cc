#include "onnx_import/edit/file_edit.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "onnx_import/codec/quote.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/codec/wire_reader.h"
#include "onnx_import/edit/wire_fields.h"
#include "platform/byte_quantity.h"
#include "platform/mapped_pages.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr size_t kReferredBytes = size_t{64} << 10;
// Below it, initializers are inputs of the graph too.
constexpr int64_t kFreeInitializers = 4;

bool LeavesPayloads(const ModelFile& file, bool keep_payloads) {
  return !keep_payloads && !file.own_name().empty() && !file.is_edited();
}

// Whether a field of a tensor is a payload that can stay in the file.
bool IsLargePayload(const WireField& field) {
  return field.number == field_of::kTensorRawData && field.type == WireType::kBytes &&
         field.payload.size() >= kReferredBytes;
}

class FileEditor {
 public:
  FileEditor(const ModelFile& file, const FileEdit& edit, bool keep_payloads)
      : file_(file), edit_(edit), refers_(LeavesPayloads(file, keep_payloads)) {}

  absl::StatusOr<std::string> Run() {
    std::string out;
    WEFT_RETURN_IF_ERROR(ForEachField(file_.bytes(), [&](const WireField& field) -> absl::Status {
      if (field.number != field_of::kModelGraph) {
        out.append(field.whole);
        return absl::OkStatus();
      }
      std::string graph;
      WEFT_RETURN_IF_ERROR(Graph(field.payload, graph));
      AppendBytesField(field_of::kModelGraph, graph, out);
      return absl::OkStatus();
    }));
    return out;
  }

 private:
  absl::Status Graph(std::string_view bytes, std::string& out) {
    if (!refers_) out.reserve(bytes.size() + bytes.size() / 8);
    for (const std::string& node : edit_.first_nodes)
      AppendBytesField(field_of::kGraphNode, node, out);
    int node = 0;
    int initializer = 0;
    WEFT_RETURN_IF_ERROR(ForEachField(bytes, [&](const WireField& field) -> absl::Status {
      if (field.number == field_of::kGraphNode) return Node(field, node++, out);
      if (field.number == field_of::kGraphInitializer) {
        const bool removed = edit_.removed_initializers.count(initializer++) > 0;
        return removed ? absl::OkStatus() : Initializer(field, out);
      }
      if (field.number == field_of::kGraphInput && IsRemovedInput(field.payload))
        return absl::OkStatus();
      out.append(field.whole);
      return absl::OkStatus();
    }));
    for (const TensorCopy& copy : edit_.added_initializers) {
      std::string tensor;
      WEFT_RETURN_IF_ERROR(Tensor(copy.source, &copy.name, tensor));
      AppendBytesField(field_of::kGraphInitializer, tensor, out);
      if (file_.proto()->ir_version() < kFreeInitializers) {
        WEFT_RETURN_IF_ERROR(AddInput(copy, out));
      }
    }
    for (const std::string& tensor : edit_.new_initializers) {
      AppendBytesField(field_of::kGraphInitializer, tensor, out);
    }
    return absl::OkStatus();
  }

  bool IsRemovedInput(std::string_view bytes) const {
    if (edit_.removed_inputs.empty()) return false;
    const std::optional<std::string_view> name = FieldWithBytes(bytes, field_of::kValueInfoName);
    return name.has_value() && edit_.removed_inputs.count(std::string(*name)) > 0;
  }

  absl::Status Node(const WireField& field, int index, std::string& out) const {
    if (edit_.removed_nodes.count(index) > 0) return absl::OkStatus();
    const auto replaced = edit_.replaced_nodes.find(index);
    if (replaced != edit_.replaced_nodes.end()) {
      for (const std::string& node : replaced->second) {
        AppendBytesField(field_of::kGraphNode, node, out);
      }
      return absl::OkStatus();
    }
    const auto first = edit_.renamed.lower_bound({index, 0});
    const auto added = edit_.added_inputs.find(index);
    const bool is_renamed = first != edit_.renamed.end() && first->first.first == index;
    if (!is_renamed && added == edit_.added_inputs.end()) {
      out.append(field.whole);
      return absl::OkStatus();
    }
    std::string node;
    int input = 0;
    WEFT_RETURN_IF_ERROR(ForEachField(field.payload, [&](const WireField& part) {
      const auto renamed = part.number == field_of::kNodeInput
                               ? edit_.renamed.find({index, input++})
                               : edit_.renamed.end();
      if (renamed == edit_.renamed.end()) {
        node.append(part.whole);
      } else {
        AppendBytesField(field_of::kNodeInput, renamed->second, node);
      }
      return absl::OkStatus();
    }));
    if (added != edit_.added_inputs.end()) {
      AppendBytesField(field_of::kNodeInput, added->second, node);
    }
    AppendBytesField(field_of::kGraphNode, node, out);
    return absl::OkStatus();
  }

  absl::Status Initializer(const WireField& field, std::string& out) const {
    if (!refers_ || field.payload.size() < kReferredBytes) {
      out.append(field.whole);
      return absl::OkStatus();
    }
    std::string tensor;
    WEFT_RETURN_IF_ERROR(Tensor(field.payload, nullptr, tensor));
    AppendBytesField(field_of::kGraphInitializer, tensor, out);
    return absl::OkStatus();
  }

  // The tensor, with another name if one is given; a large payload stays where it is.
  absl::Status Tensor(std::string_view bytes, const std::string* name, std::string& out) const {
    bool named = false;
    std::optional<std::string_view> payload;
    WEFT_RETURN_IF_ERROR(ForEachField(bytes, [&](const WireField& field) {
      if (refers_ && IsLargePayload(field) && !payload.has_value()) {
        payload = field.payload;
      } else if (name != nullptr && field.number == field_of::kTensorName) {
        if (!named) AppendBytesField(field_of::kTensorName, *name, out);
        named = true;
      } else {
        out.append(field.whole);
      }
      return absl::OkStatus();
    }));
    if (name != nullptr && !named) AppendBytesField(field_of::kTensorName, *name, out);
    if (payload.has_value()) Refer(*payload, out);
    return absl::OkStatus();
  }

  void Refer(std::string_view payload, std::string& out) const {
    onnx::TensorProto place;
    const auto add = [&place](const char* key, const std::string& value) {
      onnx::StringStringEntryProto& entry = *place.add_external_data();
      entry.set_key(key);
      entry.set_value(value);
    };
    add("location", file_.own_name());
    add("offset", absl::StrCat(payload.data() - file_.bytes().data()));
    add("length", absl::StrCat(payload.size()));
    place.set_data_location(onnx::TensorProto::EXTERNAL);
    out.append(place.SerializeAsString());
  }

  absl::Status AddInput(const TensorCopy& copy, std::string& out) const {
    onnx::TensorProto source;
    if (!source.ParseFromArray(copy.source.data(), static_cast<int>(copy.source.size()))) {
      return absl::InternalError("the model changed: a tensor cannot be read any more");
    }
    onnx::ValueInfoProto input;
    input.set_name(copy.name);
    onnx::TypeProto::Tensor& type = *input.mutable_type()->mutable_tensor_type();
    type.set_elem_type(source.data_type());
    type.mutable_shape();
    for (const int64_t dim : source.dims()) type.mutable_shape()->add_dim()->set_dim_value(dim);
    AppendBytesField(field_of::kGraphInput, input.SerializeAsString(), out);
    return absl::OkStatus();
  }

  const ModelFile& file_;
  const FileEdit& edit_;
  const bool refers_;
};

// The tensor of a node's only attribute.
std::optional<std::string_view> TensorOfNode(std::string_view node) {
  const std::optional<std::string_view> attribute = FieldWithBytes(node, field_of::kNodeAttribute);
  if (!attribute.has_value()) return std::nullopt;
  return FieldWithBytes(*attribute, field_of::kAttributeTensor);
}

}  // namespace

bool FileEdit::empty() const {
  return removed_initializers.empty() && removed_nodes.empty() && replaced_nodes.empty() &&
         removed_inputs.empty() && renamed.empty() && added_initializers.empty() &&
         added_inputs.empty() && new_initializers.empty() && first_nodes.empty();
}

CopyBudget::CopyBudget(const ModelFile& file, bool keep_payloads)
    : file_bytes_(file.bytes().size()), leaves_payloads_(LeavesPayloads(file, keep_payloads)) {}

absl::Status CopyBudget::Take(const std::string& name, std::string_view source) {
  // The copies of one tensor follow each other.
  if (source.data() != last_source_.data() || source.size() != last_source_.size()) {
    last_source_ = source;
    last_bytes_ = source.size();
    bool has_left = !leaves_payloads_;
    WEFT_RETURN_IF_ERROR(ForEachField(source, [&](const WireField& field) {
      if (!has_left && IsLargePayload(field)) {
        last_bytes_ -= field.payload.size();
        has_left = true;
      }
      return absl::OkStatus();
    }));
  }
  return Add(last_bytes_, name, source);
}

absl::Status CopyBudget::TakeNames(const std::string& name, std::string_view source, size_t bytes) {
  return Add(bytes, name, source);
}

absl::Status CopyBudget::Add(size_t bytes, const std::string& name, std::string_view source) {
  bytes_ += bytes;
  const size_t max_bytes = std::max(kMinCopyBytes, kMaxCopyGrowth * file_bytes_);
  if (bytes_ <= max_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("to give each module a tensor of its own would add more than ",
                   ByteQuantity(static_cast<int64_t>(max_bytes)), " to a file of ",
                   ByteQuantity(static_cast<int64_t>(file_bytes_)), ", at tensor ", Quoted(name),
                   " of ", ByteQuantity(static_cast<int64_t>(source.size())),
                   "; --untie none keeps what is merged but running statistics"));
}

absl::StatusOr<ModelFile> ApplyEdit(ModelFile file, const FileEdit& edit, bool keep_payloads) {
  if (edit.empty()) return file;
  WEFT_ASSIGN_OR_RETURN(std::string bytes, FileEditor(file, edit, keep_payloads).Run());
  const std::string_view old = file.bytes();
  ReleaseMappedPages({reinterpret_cast<const std::byte*>(old.data()), old.size()});
  absl::StatusOr<ModelFile> edited = ModelFile::Edited(std::move(file), std::move(bytes));
  if (edited.ok()) return edited;
  return Annotate(edited.status(), "after an edit of its tensors");
}

EncodedTensors FindEncodedTensors(const ModelFile& file) {
  EncodedTensors tensors;
  const std::optional<std::string_view> graph = FieldWithBytes(file.bytes(), field_of::kModelGraph);
  if (!graph.has_value()) return tensors;
  int node = 0;
  // The bytes were checked when the file was loaded; what cannot be read is left out.
  const absl::Status read = ForEachField(*graph, [&](const WireField& field) {
    if (field.number == field_of::kGraphInitializer) {
      tensors.initializers.push_back(field.payload);
    } else if (field.number == field_of::kGraphNode) {
      const std::optional<std::string_view> tensor = TensorOfNode(field.payload);
      if (tensor.has_value()) tensors.constants[node] = *tensor;
      ++node;
    }
    return absl::OkStatus();
  });
  return read.ok() ? tensors : EncodedTensors();
}

}  // namespace weft
