#include "onnx_import/importer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "onnx_import/codec/model_validator.h"
#include "onnx_import/codec/quote.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/graph_converter.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {

namespace {

void AddMaps(const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& values,
             std::map<std::string, MapType>& maps) {
  for (const onnx::ValueInfoProto& value : values) {
    const bool in_sequence = value.type().has_sequence_type();
    const onnx::TypeProto& type =
        in_sequence ? value.type().sequence_type().elem_type() : value.type();
    const int key = type.map_type().key_type();
    const int element = type.map_type().value_type().tensor_type().elem_type();
    if (!type.has_map_type() || !IsValidDType(key) || !IsValidDType(element)) continue;
    maps[value.name()] = {static_cast<DType>(key), static_cast<DType>(element), in_sequence};
  }
}

// The latest set of ONNX's operators among `imports`, or `latest` if that is later.
int64_t LatestOpset(const google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>& imports,
                    int64_t latest) {
  for (const onnx::OperatorSetIdProto& opset : imports) {
    if (NormalizedDomain(opset.domain()).empty())
      latest = std::max<int64_t>(latest, opset.version());
  }
  return latest;
}

}  // namespace

KnownVersions KnownIrVersions() { return {kOldestIrVersion, kNewestIrVersion}; }

KnownVersions KnownOpsets() { return {kOldestOpset, kNewestOpset}; }

std::string MapType::ToString() const {
  const std::string map =
      absl::StrCat("map(", std::string(DTypeName(key)), ", ", std::string(DTypeName(value)), ")");
  return in_sequence ? absl::StrCat("sequence(", map, ")") : map;
}

ImportedModel DescribeFile(const ModelFile& file) {
  const onnx::ModelProto& proto = *file.proto();
  ImportedModel model;
  model.file = file;
  model.producer_name = proto.producer_name();
  model.producer_version = proto.producer_version();
  model.doc = proto.doc_string();
  model.ir_version = proto.ir_version();
  model.model_version = proto.model_version();
  for (const onnx::OperatorSetIdProto& opset : proto.opset_import()) {
    model.opsets[NormalizedDomain(opset.domain())] = opset.version();
  }
  int64_t latest = LatestOpset(proto.opset_import(), 0);
  for (const onnx::FunctionProto& function : proto.functions()) {
    latest = LatestOpset(function.opset_import(), latest);
  }
  model.unknown_opset = latest > kNewestOpset ? latest : 0;
  for (const onnx::StringStringEntryProto& entry : proto.metadata_props()) {
    model.metadata[entry.key()] = entry.value();
  }
  AddMaps(proto.graph().input(), model.maps);
  AddMaps(proto.graph().output(), model.maps);
  return model;
}

absl::StatusOr<ImportedModel> ImportModel(const ModelFile& file, const ImportOptions& options) {
  const onnx::ModelProto& proto = *file.proto();
  ImportedModel model = DescribeFile(file);
  ConversionContext context{
      proto, options, {file.proto(), file.external()}, model.opsets, FunctionTable(proto), {}};
  absl::Status status = context.functions.CheckCalls(proto.graph());
  GraphConverter converter(context, model.graph);
  if (status.ok()) status = converter.Convert(proto.graph());
  if (!status.ok()) return Printable(Annotate(status, file.Label()));
  model.parameters = std::move(converter.parameters());
  return model;
}

absl::StatusOr<ImportedModel> ImportModelFile(FileSystem& file_system, const std::string& path,
                                              const ImportOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const ModelFile file, ModelFile::Load(file_system, path));
  return ImportModel(file, options);
}

}  // namespace weft
