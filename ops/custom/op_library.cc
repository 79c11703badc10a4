#include "ops/custom/op_library.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <filesystem>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/policy/file_verifier.h"
#include "graph/policy/operator_policy.h"
#include "ops/custom/custom_op.h"
#include "ops/custom/sharding_notation.h"
#include "ops/custom/trial_load.h"
#include "ops/defs/rules/rules.h"
#include "ops/kernel.h"
#include "platform/checksum.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

std::string FullName(const WeftOpDescriptor& op) { return absl::StrCat(op.domain, "::", op.name); }

// One op of a library, as the engine will know it.
class Declaration {
 public:
  explicit Declaration(const WeftOpDescriptor& op) : op_(op) {}

  absl::StatusOr<OpSchema> Schema() {
    WEFT_RETURN_IF_ERROR(CheckNames());
    OpSchema schema(op_.domain, op_.name);
    WEFT_RETURN_IF_ERROR(AddOperands(schema));
    WEFT_RETURN_IF_ERROR(AddAttributes(schema));
    if (op_.infer == nullptr) return Error("it has no shape function (Infer)");
    if (op_.run_cpu == nullptr && op_.run_cuda == nullptr) return Error("it has no kernel (Cpu)");
    const WeftOpDescriptor* const op = &op_;
    schema.Infer([op](InferenceContext& context) { return InferCustomOp(*op, context); });
    if (op_.gradient != nullptr) {
      schema.Gradient([op](GradientContext& context) { return AddCustomGradient(*op, context); });
    } else if (op_.not_differentiable != 0) {
      schema.NoGradient("its library says so");
    }
    if (op_.flops != nullptr) {
      schema.CostOf([op](const NodeView& view) {
        return Cost{CustomOpFlops(*op, view), OperandBytes(view)};
      });
    }
    WEFT_RETURN_IF_ERROR(AddSharding(schema));
    return schema;
  }

 private:
  absl::Status Error(const std::string& what) const {
    const char* const domain = op_.domain == nullptr ? "" : op_.domain;
    const char* const name = op_.name == nullptr ? "?" : op_.name;
    return absl::InvalidArgumentError(absl::StrCat("op '", domain, "::", name, "': ", what));
  }

  absl::Status CheckNames() const {
    if (op_.name == nullptr || *op_.name == 0) return Error("it has no name");
    if (op_.domain == nullptr || *op_.domain == 0) {
      return Error("it has no domain: the empty one is ONNX's own, choose one of yours");
    }
    const std::string domain = op_.domain;
    if (domain == "ai.onnx" || domain == kWeftDomain) {
      return Error("its domain belongs to others: choose one of yours");
    }
    const bool counts = op_.num_inputs >= 0 && op_.num_outputs >= 1 && op_.num_attributes >= 0 &&
                        op_.num_value_inputs >= 0;
    if (!counts) return Error("it declares no output, or less than nothing");
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<DType>> DTypes(const WeftOperand& operand) const {
    std::vector<DType> dtypes;
    for (int32_t k = 0; k < operand.num_dtypes; ++k) {
      const int32_t number = operand.dtypes[k];
      if (!IsValidDType(number) || DTypeBits(static_cast<DType>(number)) == 0) {
        return Error(absl::StrCat("operand '", operand.name, "' has the element type ", number,
                                  ", which a custom op cannot have"));
      }
      dtypes.push_back(static_cast<DType>(number));
    }
    return dtypes;
  }

  absl::Status AddOperands(OpSchema& schema) const {
    for (int32_t i = 0; i < op_.num_inputs; ++i) {
      const WeftOperand& operand = op_.inputs[i];
      if (operand.name == nullptr) return Error(absl::StrCat("input ", i, " has no name"));
      WEFT_ASSIGN_OR_RETURN(std::vector<DType> dtypes, DTypes(operand));
      if ((operand.flags & WEFT_VARIADIC) != 0) {
        if (i + 1 < op_.num_inputs) return Error("only the last input may be variadic");
        schema.VariadicInput(operand.name, std::move(dtypes));
      } else if ((operand.flags & WEFT_OPTIONAL) != 0) {
        schema.OptionalInput(operand.name, std::move(dtypes));
      } else {
        schema.Input(operand.name, std::move(dtypes));
      }
      if ((operand.flags & WEFT_LEARNABLE) != 0) schema.Learnable();
      if ((operand.flags & WEFT_NEVER_LEARNABLE) != 0) schema.NeverLearnable();
    }
    for (int32_t i = 0; i < op_.num_outputs; ++i) {
      const WeftOperand& operand = op_.outputs[i];
      if (operand.name == nullptr) return Error(absl::StrCat("output ", i, " has no name"));
      const bool is_optional = (operand.flags & WEFT_OPTIONAL) != 0;
      is_optional ? schema.OptionalOutput(operand.name) : schema.Output(operand.name);
    }
    std::vector<int> value_inputs;
    for (int32_t k = 0; k < op_.num_value_inputs; ++k) {
      const int32_t i = op_.value_inputs[k];
      if (i < 0 || i >= op_.num_inputs) return Error(absl::StrCat("there is no value input ", i));
      value_inputs.push_back(i);
    }
    if (!value_inputs.empty()) schema.ValueInputs(std::move(value_inputs));
    return absl::OkStatus();
  }

  absl::Status AddAttributes(OpSchema& schema) const {
    static constexpr AttributeType kTypes[] = {AttributeType::kInt, AttributeType::kFloat,
                                               AttributeType::kString, AttributeType::kInts,
                                               AttributeType::kFloats};
    for (int32_t k = 0; k < op_.num_attributes; ++k) {
      const WeftAttributeDeclaration& attribute = op_.attributes[k];
      if (attribute.name == nullptr || attribute.type < WEFT_INT || attribute.type > WEFT_FLOATS) {
        return Error(absl::StrCat("attribute ", k, " has no name or no known type"));
      }
      schema.Attr(attribute.name, kTypes[attribute.type], attribute.required != 0);
    }
    return absl::OkStatus();
  }

  absl::Status AddSharding(OpSchema& schema) const {
    if (op_.sharding == nullptr) return absl::OkStatus();
    absl::StatusOr<ShardingNotation> notation = ShardingNotation::Parse(op_.sharding);
    if (!notation.ok()) return Error(std::string(notation.status().message()));
    schema.Sharding(
        [notation = *std::move(notation)](const NodeView& view) { return notation.Bind(view); });
    return absl::OkStatus();
  }

  const WeftOpDescriptor& op_;
};

absl::Status RegisterKernels(const WeftOpDescriptor& op, const KernelWrapper& wrapper) {
  const auto add = [&](DeviceKind device, WeftFunction run) {
    if (run == nullptr) return absl::OkStatus();
    const auto prepare =
        [&op, run,
         wrapper](const PrepareContext& context) -> absl::StatusOr<std::unique_ptr<Kernel>> {
      WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, PrepareCustomKernel(op, run, context));
      return wrapper == nullptr ? std::move(kernel) : wrapper(std::move(kernel), context);
    };
    return KernelRegistry::Global().Register(op.domain, op.name, device, prepare);
  };
  WEFT_RETURN_IF_ERROR(add(DeviceKind::kCpu, op.run_cpu));
  return add(DeviceKind::kCuda, op.run_cuda);
}

// Which file a path names, and in which state: the checksum, which stands for the library in the
// handshake of a job, must be that of what the loader has read, which opens the file itself.
using FileState = std::tuple<dev_t, ino_t, off_t, time_t, long, time_t, long>;
FileState StateOf(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return {};
  return {info.st_dev,          info.st_ino,         info.st_size,        info.st_mtim.tv_sec,
          info.st_mtim.tv_nsec, info.st_ctim.tv_sec, info.st_ctim.tv_nsec};
}

absl::Status InLibrary(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat("op library '", path, "': ", std::string(status.message())));
}

}  // namespace

// The handshake: nothing of a library is looked at before its version.
absl::StatusOr<const WeftOpLibrary*> OpenOpLibrary(const std::string& path) {
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        dlerror(), "; is it a shared library (-shared -fPIC) built for this machine?"));
  }
  const auto version =
      reinterpret_cast<WeftAbiVersionFunction>(dlsym(handle, WEFT_ABI_VERSION_SYMBOL));
  const auto describe =
      reinterpret_cast<WeftOpLibraryFunction>(dlsym(handle, WEFT_OP_LIBRARY_SYMBOL));
  if (version == nullptr || describe == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("it does not export ", WEFT_ABI_VERSION_SYMBOL, " and ",
                     WEFT_OP_LIBRARY_SYMBOL, ": use the macro WEFT_OP_LIBRARY of custom_op.h"));
  }
  if (const uint32_t theirs = version(); theirs != WEFT_CUSTOM_OP_ABI_VERSION) {
    return absl::InvalidArgumentError(absl::StrCat(
        "it was built for version ", theirs, " of the ABI of custom ops, this program has version ",
        WEFT_CUSTOM_OP_ABI_VERSION, "; build it again with this program's custom_op.h"));
  }
  const WeftOpLibrary* const library = describe();
  const bool is_empty = library == nullptr || (library->num_ops > 0 && library->ops == nullptr);
  if (is_empty) return absl::InvalidArgumentError("it describes no ops");
  return library;
}

// Everything is checked before anything is registered. What the process's policy of operators does
// not allow is left out: nobody can call a function of such an op.
absl::Status RegisterOpLibrary(const WeftOpLibrary& description, OpLibrary& library,
                               const KernelWrapper& wrapper) {
  std::vector<std::pair<const WeftOpDescriptor*, OpSchema>> allowed;
  std::set<std::string> names;
  for (uint32_t k = 0; k < description.num_ops; ++k) {
    const WeftOpDescriptor& op = description.ops[k];
    WEFT_ASSIGN_OR_RETURN(OpSchema schema, Declaration(op).Schema());
    const std::string name = FullName(op);
    if (!CurrentOperatorPolicy().Check(op.domain, op.name).ok()) {
      library.forbidden.push_back(name);
      continue;
    }
    allowed.emplace_back(&op, std::move(schema));
    const bool is_new =
        names.insert(name).second && OpRegistry::Global().Find(op.domain, op.name) == nullptr;
    if (!is_new) {
      return absl::AlreadyExistsError(
          absl::StrCat("op '", name, "' is there already: declared twice, or by another library"));
    }
  }
  if (description.num_ops == 0) return absl::InvalidArgumentError("it declares no op");
  for (auto& [op, schema] : allowed) {
    WEFT_RETURN_IF_ERROR(OpRegistry::Global().Register(std::move(schema)));
    WEFT_RETURN_IF_ERROR(RegisterKernels(*op, wrapper));
  }
  library.ops.assign(names.begin(), names.end());
  AddLoadedLibrary(library, description);
  return absl::OkStatus();
}

absl::StatusOr<OpLibraryFile> ReadOpLibrary(FileSystem& files, const std::string& path) {
  OpLibraryFile file;
  WEFT_ASSIGN_OR_RETURN(file.bytes, files.MapFile(path));
  WEFT_RETURN_IF_ERROR(VerifyFile(files, path, file.bytes->bytes()).status());
  file.library.path = std::filesystem::absolute(path).string();
  file.library.checksum = absl::StrFormat("%016x", Checksum(file.bytes->bytes()));
  for (const OpLibrary& library : LoadedOpLibraries()) {
    if (library.checksum != file.library.checksum) continue;
    file.library = library;
    file.is_loaded = true;
    break;
  }
  return file;
}

absl::StatusOr<OpLibrary> LoadOpLibrary(FileSystem& files, const std::string& path,
                                        absl::Duration patience) {
  const FileState before = StateOf(path);
  absl::StatusOr<OpLibraryFile> file = ReadOpLibrary(files, path);
  if (!file.ok()) return InLibrary(path, file.status());
  OpLibrary& library = file->library;
  if (file->is_loaded) return library;
  const absl::Status tried =
      TryApart([&library] { return OpenOpLibrary(library.path).status(); }, patience);
  if (!tried.ok()) return InLibrary(path, tried);
  const absl::StatusOr<const WeftOpLibrary*> description = OpenOpLibrary(library.path);
  if (!description.ok()) return InLibrary(path, description.status());
  if (StateOf(path) != before) {
    return InLibrary(
        path, absl::FailedPreconditionError("the file was changed while it was loaded; try again"));
  }
  const absl::Status registered = RegisterOpLibrary(**description, library);
  if (!registered.ok()) return InLibrary(path, registered);
  return library;
}

}  // namespace weft
