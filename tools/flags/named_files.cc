#include "tools/flags/named_files.h"

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "onnx_import/tensor_proto.h"
#include "platform/status_macros.h"
#include "training/data/data_file.h"
#include "training/data/npz_file.h"

namespace weft {
namespace {

std::string TypeText(const Tensor& tensor) {
  return absl::StrCat(std::string(DTypeName(tensor.dtype())), tensor.shape().ToString());
}

absl::Status DoesNotFit(const NamedFile& file, const Tensor& tensor, const ValueDef& input,
                        const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("data file '", file.path, "' is ",
                                                 TypeText(tensor), ", input '", input.name, "' is ",
                                                 input.type.ToString(), ": ", why));
}

absl::StatusOr<Tensor> ConvertTo(DType wanted, const Tensor& tensor, const NamedFile& file,
                                 const ValueDef& input, bool scale_bytes) {
  const DType given = tensor.dtype();
  if (given == wanted) return tensor;
  if (given == DType::kUint8 && IsFloatingPoint(wanted)) {
    WEFT_ASSIGN_OR_RETURN(Tensor floats, CastTensor(tensor, DType::kFloat32));
    if (scale_bytes) {
      for (float& value : floats.mutable_data<float>()) value /= 255.0f;
    }
    return CastTensor(floats, wanted);
  }
  const bool both_floating = IsFloatingPoint(given) && IsFloatingPoint(wanted);
  if (both_floating || (IsInteger(given) && IsInteger(wanted))) return CastTensor(tensor, wanted);
  return DoesNotFit(file, tensor, input, "convert the file's elements to that type");
}

// The shape of `samples` of them: the input's own, with the sample axis and unknown dimensions
// filled in from the file; nothing when the element counts disagree.
std::optional<Shape> ShapeForInput(const Shape& given, const SymbolicShape& wanted) {
  if (!wanted.has_rank()) return given;
  if (wanted.rank() == given.rank()) {
    bool fits = true;
    for (int i = 0; i < wanted.rank(); ++i) {
      fits = fits && (!wanted.dim(i).is_known() || wanted.dim(i).size() == given.dim(i));
    }
    if (fits) return given;
  }
  if (given.rank() == 0 || wanted.rank() == 0) return std::nullopt;
  Shape shape({given.dim(0)});
  for (int i = 1; i < wanted.rank(); ++i) {
    if (!wanted.dim(i).is_known()) return std::nullopt;
    shape.AddDim(wanted.dim(i).size());
  }
  const bool batch_fits = !wanted.dim(0).is_known() || wanted.dim(0).size() == given.dim(0);
  if (!batch_fits || shape.num_elements() != given.num_elements()) return std::nullopt;
  return shape;
}

// FILE.npz:ARRAY, or FILE.npz, of which the input takes the array of its name or the only one.
absl::StatusOr<Tensor> ReadArrayOf(FileSystem& files, const std::string& path,
                                   const std::string& input) {
  const size_t colon = path.find(".npz:");
  const size_t end = colon == std::string::npos ? path.size() : colon + 4;
  WEFT_ASSIGN_OR_RETURN(const NpzFile file, NpzFile::Open(files, path.substr(0, end)));
  if (end < path.size()) return file.Read(path.substr(end + 1));
  return file.Read(file.Has(input) ? input : "");
}

bool IsNpz(const std::string& path) {
  return absl::EndsWith(path, ".npz") || path.find(".npz:") != std::string::npos;
}

}  // namespace

bool IsArchiveOfInputs(const std::string& text) {
  return absl::EndsWith(text, ".npz") && text.find('=') == std::string::npos;
}

absl::StatusOr<std::vector<NamedFile>> NamedFilesOf(FileSystem& files, const std::string& path,
                                                    const Graph& graph,
                                                    std::vector<std::string>& unused) {
  WEFT_ASSIGN_OR_RETURN(const NpzFile file, NpzFile::Open(files, path));
  std::vector<NamedFile> named;
  for (const ValueId id : graph.inputs()) {
    const std::string& name = graph.value(id).name;
    if (file.Has(name)) named.push_back({name, absl::StrCat(path, ":", name)});
  }
  for (const std::string& array : file.ArrayNames()) {
    const auto is_it = [&](const NamedFile& one) { return one.name == array; };
    if (std::none_of(named.begin(), named.end(), is_it)) unused.push_back(array);
  }
  return named;
}

absl::StatusOr<std::vector<NamedFile>> ParseNamedFiles(const std::vector<std::string>& texts,
                                                       const std::string& flag) {
  std::vector<NamedFile> files;
  for (const std::string& text : texts) {
    bool first = true;
    for (const absl::string_view part : absl::StrSplit(text, ',')) {
      const size_t equals = part.find('=');
      if (equals == absl::string_view::npos && !first) {
        absl::StrAppend(&files.back().path, ",", part);
        continue;
      }
      if (equals == absl::string_view::npos || equals == 0 || equals + 1 == part.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat(flag, " ", text, ": expected NAME=FILE, with the name of a graph input"));
      }
      const std::string name(part.substr(0, equals));
      for (const NamedFile& file : files) {
        if (file.name == name) {
          return absl::InvalidArgumentError(absl::StrCat(flag, " names input '", name, "' twice"));
        }
      }
      files.push_back({name, std::string(part.substr(equals + 1))});
      first = false;
    }
  }
  return files;
}

absl::StatusOr<Value> ReadInput(FileSystem& files, const NamedFile& file, const ValueDef& input,
                                const ReadInputOptions& options) {
  if (absl::EndsWith(file.path, ".pb")) {
    WEFT_ASSIGN_OR_RETURN(NamedValue read, ReadValueFile(files, file.path, input.type.kind));
    return std::move(read.value);
  }
  WEFT_ASSIGN_OR_RETURN(Tensor tensor, IsNpz(file.path) ? ReadArrayOf(files, file.path, input.name)
                                                        : ReadDataFile(files, file.path));
  if (options.samples > 0 && tensor.shape().rank() > 0) {
    tensor = tensor.Rows(0, std::min(options.samples, tensor.shape().dim(0)));
  }
  const std::optional<Shape> shape = ShapeForInput(tensor.shape(), input.type.shape);
  if (!shape) {
    return DoesNotFit(file, tensor, input,
                      "the sample count (axis 0) or the elements of a sample differ");
  }
  WEFT_ASSIGN_OR_RETURN(const Tensor converted,
                        ConvertTo(input.type.dtype, tensor, file, input, options.scale_bytes));
  return Value(converted.Reshaped(*shape));
}

std::map<std::string, SymbolicShape> ShapesOtherThanDeclared(
    const Graph& graph, const std::map<std::string, Value>& inputs) {
  std::map<std::string, SymbolicShape> others;
  for (const ValueId id : graph.inputs()) {
    const ValueDef& input = graph.value(id);
    const auto found = inputs.find(input.name);
    if (found == inputs.end() || found->second.kind() != ValueKind::kTensor) continue;
    const Shape& shape = found->second.tensor().shape();
    if (!input.type.shape.has_rank()) continue;
    const std::vector<Dim>& dims = input.type.shape.dims();
    bool fits = static_cast<int>(dims.size()) == shape.rank();
    for (size_t i = 0; fits && i < dims.size(); ++i) {
      fits = !dims[i].is_known() || dims[i].size() == shape.dim(static_cast<int>(i));
    }
    if (!fits) others[input.name] = SymbolicShape(shape);
  }
  return others;
}

}  // namespace weft
