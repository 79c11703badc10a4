#include "ops/custom/custom_op.h"

#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "platform/status_macros.h"

// One call of a library's function: what the functions of the host table are asked for, by kind of
// call. The defaults say that the question has no place in this call.
struct WeftCall {
  virtual ~WeftCall() = default;

  virtual const weft::Node& node() const = 0;
  virtual void InputType(int, WeftType* type) const { *type = Misplaced<WeftType>("input_type"); }
  virtual void OutputType(int, WeftType* type) const { *type = Misplaced<WeftType>("output_type"); }
  virtual bool InputValue(int, WeftTensor*) const { return Misplaced<bool>("input_value"); }
  virtual void SetOutputType(int, const WeftType&) { Misplaced<int>("set_output_type"); }
  virtual void Input(int, WeftTensor* tensor) const { *tensor = Misplaced<WeftTensor>("input"); }
  virtual void Output(int, WeftTensor* tensor) const { *tensor = Misplaced<WeftTensor>("output"); }
  virtual void ParallelFor(int64_t, double, absl::FunctionRef<void(int64_t, int64_t)>) {
    Misplaced<int>("parallel_for");
  }
  virtual void* stream() const { return nullptr; }
  virtual int64_t step() const { return 0; }
  virtual WeftValue InputId(int) const { return Misplaced<int>("input_value_id"); }
  virtual WeftValue OutputId(int) { return Misplaced<int>("output_value_id"); }
  virtual WeftValue OutputGradient(int) const { return Misplaced<int>("output_gradient"); }
  virtual bool NeedsInputGradient(int) const { return Misplaced<bool>("needs_input_gradient"); }
  virtual void SetInputGradient(int, WeftValue) { Misplaced<int>("set_input_gradient"); }
  virtual void AddNode(const std::string&, const std::string&, std::vector<weft::ValueId>,
                       weft::Attributes, WeftValue*, int) {
    Misplaced<int>("add_node");
  }
  virtual WeftValue Constant(int32_t, double) { return Misplaced<int>("constant"); }
  virtual int loop_threads() const { return 1; }

  // The first message counts.
  void Fail(const std::string& message) const {
    if (!failed_) message_ = message.empty() ? "failed without a message" : message;
    failed_ = true;
  }
  bool failed() const { return failed_; }
  const std::string& message() const { return message_; }
  void Forget() { failed_ = false; }

  bool HasInput(int i) const {
    return i >= 0 && i < static_cast<int>(node().inputs.size()) && node().inputs[i].valid();
  }
  bool HasOutput(int i) const {
    return i >= 0 && i < static_cast<int>(node().outputs.size()) && node().outputs[i].valid();
  }

 protected:
  // False, with an error, for an operand that the node does not have.
  bool RequireInput(int i) const { return HasInput(i) || Lacks("input", i); }
  bool RequireOutput(int i) const { return HasOutput(i) || Lacks("output", i); }

 private:
  template <typename T>
  T Misplaced(const char* function) const {
    Fail(absl::StrCat("the op called ", function, " where it has no place"));
    return T{};
  }
  bool Lacks(const char* kind, int i) const {
    Fail(absl::StrCat("the op asked for ", kind, " ", i, ", which the node does not have"));
    return false;
  }

  mutable bool failed_ = false;
  mutable std::string message_;
};

namespace weft {
namespace {

// ---- The host table.

int32_t FindAttribute(const WeftCall* call, const char* name, WeftAttribute* attribute) {
  return AttributeToAbi(call->node().attributes, name, attribute);
}

void AddNode(WeftCall* call, const char* domain, const char* op, const WeftValue* inputs,
             int32_t num_inputs, const WeftAttribute* attributes, int32_t num_attributes,
             WeftValue* outputs, int32_t num_outputs) {
  std::fill(outputs, outputs + num_outputs, 0);
  std::vector<ValueId> ids;
  for (int32_t k = 0; k < num_inputs; ++k) {
    ids.push_back(inputs[k] <= 0 ? kNoValue : ValueId(inputs[k] - 1));
  }
  call->AddNode(domain, op, std::move(ids), AttributesFromAbi(attributes, num_attributes), outputs,
                num_outputs);
}

WeftHost MakeHost() {
  WeftHost host{};
  host.abi_version = WEFT_CUSTOM_OP_ABI_VERSION;
  host.size = sizeof(WeftHost);
  host.fail = [](WeftCall* c, const char* message) { c->Fail(message == nullptr ? "" : message); };
  host.num_inputs = [](const WeftCall* c) { return static_cast<int32_t>(c->node().inputs.size()); };
  host.num_outputs = [](const WeftCall* c) {
    return static_cast<int32_t>(c->node().outputs.size());
  };
  host.has_input = [](const WeftCall* c, int32_t i) -> int32_t { return c->HasInput(i); };
  host.has_output = [](const WeftCall* c, int32_t i) -> int32_t { return c->HasOutput(i); };
  host.attribute = FindAttribute;
  host.input_type = [](const WeftCall* c, int32_t i, WeftType* t) { c->InputType(i, t); };
  host.output_type = [](const WeftCall* c, int32_t i, WeftType* t) { c->OutputType(i, t); };
  host.input_value = [](const WeftCall* c, int32_t i, WeftTensor* t) -> int32_t {
    return c->InputValue(i, t);
  };
  host.set_output_type = [](WeftCall* c, int32_t i, const WeftType* t) { c->SetOutputType(i, *t); };
  host.input = [](const WeftCall* c, int32_t i, WeftTensor* t) { c->Input(i, t); };
  host.output = [](const WeftCall* c, int32_t i, WeftTensor* t) { c->Output(i, t); };
  host.parallel_for = [](WeftCall* c, int64_t items, double nanoseconds,
                         void (*body)(void*, int64_t, int64_t), void* argument) {
    c->ParallelFor(items, nanoseconds,
                   [&](int64_t begin, int64_t end) { body(argument, begin, end); });
  };
  host.stream = [](const WeftCall* c) { return c->stream(); };
  host.step = [](const WeftCall* c) { return c->step(); };
  host.input_value_id = [](const WeftCall* c, int32_t i) { return c->InputId(i); };
  host.output_value_id = [](WeftCall* c, int32_t i) { return c->OutputId(i); };
  host.output_gradient = [](const WeftCall* c, int32_t i) { return c->OutputGradient(i); };
  host.needs_input_gradient = [](const WeftCall* c, int32_t i) -> int32_t {
    return c->NeedsInputGradient(i);
  };
  host.set_input_gradient = [](WeftCall* c, int32_t i, WeftValue v) { c->SetInputGradient(i, v); };
  host.add_node = AddNode;
  host.constant = [](WeftCall* c, int32_t dtype, double value) {
    return c->Constant(dtype, value);
  };
  return host;
}

const WeftHost& Host() {
  static const WeftHost host = MakeHost();
  return host;
}

// The C++ wrapper (ops/custom_op.h) never throws across the ABI. A library that uses the C ABI
// directly might. The status has the library's message; the caller adds the name of the node.
absl::Status Invoke(WeftFunction function, WeftCall& call, const void* user) {
  try {
    function(&Host(), &call, user);
  } catch (...) {
    call.Fail("an exception left the library");
  }
  if (!call.failed()) return absl::OkStatus();
  return absl::InvalidArgumentError(call.message());
}

// ---- Shape functions.

class InferCall final : public WeftCall {
 public:
  explicit InferCall(InferenceContext& context)
      : context_(context), was_set_(context.node().outputs.size(), false) {
    for (int i = 0; i < context.num_inputs(); ++i) AddInput(i);
  }

  const Node& node() const override { return context_.node(); }
  void InputType(int i, WeftType* type) const override {
    *type = RequireInput(i) ? inputs_[i] : WeftType{};
  }
  bool InputValue(int i, WeftTensor* tensor) const override {
    if (!RequireInput(i)) return false;
    const Tensor* value = context_.InputValue(i);
    if (value == nullptr || value->dtype() == DType::kString) return false;
    const int64_t* dims = value->shape().dims().data();
    *tensor = {value->raw_data(),
               dims,
               dims,
               zeros_,
               value->shape().rank(),
               static_cast<int32_t>(value->dtype())};
    return true;
  }
  void SetOutputType(int i, const WeftType& type) override {
    if (!HasOutput(i)) return;  // one that is not wanted
    const bool is_type = IsValidDType(type.dtype) && type.rank <= kMaxRank;
    if (!is_type) {
      return Fail(absl::StrCat("the shape function gave output ", i, " the element type ",
                               type.dtype, " and the rank ", type.rank));
    }
    ValueType result{ValueKind::kTensor, static_cast<DType>(type.dtype), SymbolicShape()};
    if (type.rank >= 0) {
      std::vector<Dim> dims;
      for (int32_t axis = 0; axis < type.rank; ++axis) {
        const int64_t size = type.dims[axis];
        if (size > kMaxDim) {
          return Fail(absl::StrCat("the shape function gave axis ", axis, " of output ", i,
                                   " the size ", size));
        }
        const auto symbol = symbols_by_number_.find(size);
        dims.push_back(size >= 0                            ? Dim(size)
                       : symbol != symbols_by_number_.end() ? Dim::Symbol(symbol->second)
                                                            : Dim());
      }
      result.shape = SymbolicShape(std::move(dims));
    }
    was_set_[i] = true;
    context_.SetOutput(i, std::move(result));
  }

  absl::Status CheckAllSet() const {
    for (int i = 0; i < context_.num_outputs(); ++i) {
      if (!HasOutput(i) || was_set_[i]) continue;
      return context_.Error(
          absl::StrCat("the shape function of the op set no type for output ", i));
    }
    return absl::OkStatus();
  }

 private:
  void AddInput(int i) {
    WeftType& type = inputs_.emplace_back();
    std::vector<int64_t>& dims = dims_.emplace_back();
    if (!context_.HasInput(i)) return;
    const ValueType& known = context_.InputType(i);
    type.dtype = static_cast<int32_t>(known.dtype);
    type.rank = -1;
    if (!known.shape.has_rank()) return;
    for (const Dim& dim : known.shape.dims()) {
      dims.push_back(dim.is_known()    ? dim.size()
                     : dim.is_symbol() ? NumberOf(dim.symbol())
                                       : custom::Type::kUnknown);
    }
    type.rank = static_cast<int32_t>(dims.size());
    type.dims = dims.data();  // a moved vector keeps its memory
  }

  int64_t NumberOf(const std::string& symbol) {
    const auto [known, is_new] =
        numbers_.try_emplace(symbol, -1 - static_cast<int64_t>(numbers_.size()));
    if (is_new) symbols_by_number_[known->second] = symbol;
    return known->second;
  }

  static constexpr int64_t zeros_[kMaxRank] = {};
  InferenceContext& context_;
  std::vector<WeftType> inputs_;
  std::vector<std::vector<int64_t>> dims_;
  std::map<std::string, int64_t> numbers_;
  std::map<int64_t, std::string> symbols_by_number_;
  std::vector<bool> was_set_;
};

// ---- Costs.

class CostCall final : public WeftCall {
 public:
  explicit CostCall(const NodeView& view) : view_(view) {}
  const Node& node() const override { return view_.node(); }
  void InputType(int i, WeftType* type) const override {
    *type = RequireInput(i) ? TypeOf(view_.InputDType(i), view_.InputShape(i)) : WeftType{};
  }
  void OutputType(int i, WeftType* type) const override {
    *type = RequireOutput(i) ? TypeOf(view_.OutputDType(i), view_.OutputShape(i)) : WeftType{};
  }

 private:
  static WeftType TypeOf(DType dtype, const Shape& shape) {
    return {static_cast<int32_t>(dtype), shape.rank(), shape.dims().data()};
  }
  const NodeView& view_;
};

// ---- Kernels.

class KernelCall final : public WeftCall {
 public:
  KernelCall(const PrepareContext& context, LoopRunner* loops)
      : node_(context.node()), threads_(context.threads()), loops_(loops) {
    for (int i = 0; i < context.num_inputs(); ++i) {
      const bool present = context.HasInput(i);
      inputs_.push_back({context.InputDType(i), context.InputShape(i),
                         present ? context.InputSlice(i) : OperandSlice{}});
    }
    for (int i = 0; i < context.num_outputs(); ++i) {
      const bool present = context.HasOutput(i);
      outputs_.push_back({context.OutputDType(i), context.OutputShape(i),
                          present ? context.OutputSlice(i) : OperandSlice{}});
    }
  }

  void Begin(const KernelContext& run) {
    run_ = &run;
    Forget();
  }
  const Node& node() const override { return node_; }
  void Input(int i, WeftTensor* tensor) const override {
    *tensor = RequireInput(i) ? inputs_[i].At(const_cast<void*>(run_->inputs[i])) : WeftTensor{};
  }
  void Output(int i, WeftTensor* tensor) const override {
    *tensor = RequireOutput(i) ? outputs_[i].At(run_->outputs[i]) : WeftTensor{};
  }
  void ParallelFor(int64_t items, double nanoseconds_per_item,
                   absl::FunctionRef<void(int64_t, int64_t)> body) override {
    if (loops_ != nullptr) return loops_->Run(items, nanoseconds_per_item, body);
    cpu::ParallelFor(threads_, items, nanoseconds_per_item, 1, body);
  }
  int loop_threads() const override { return loops_ == nullptr ? threads_ : 1; }
  void* stream() const override {
    return run_->stream == nullptr ? nullptr : run_->stream->native_handle();
  }
  int64_t step() const override {
    has_asked_for_step_ = true;
    return run_->step;
  }
  // In any run so far.
  bool has_asked_for_step() const { return has_asked_for_step_; }

 private:
  struct Operand {
    DType dtype;
    Shape shape;
    OperandSlice slice;
    WeftTensor At(void* data) const {
      return {data,
              shape.dims().data(),
              slice.global_shape.dims().data(),
              slice.offset.data(),
              shape.rank(),
              static_cast<int32_t>(dtype)};
    }
  };
  const Node node_;
  const int threads_;
  LoopRunner* const loops_;
  std::vector<Operand> inputs_;
  std::vector<Operand> outputs_;
  const KernelContext* run_ = nullptr;
  mutable std::atomic<bool> has_asked_for_step_ = false;
};

class CustomKernel final : public Kernel {
 public:
  CustomKernel(WeftFunction run, const void* user, const PrepareContext& context, LoopRunner* loops)
      : run_(run), user_(user), call_(context, loops) {}
  absl::Status Run(const KernelContext& context) override {
    call_.Begin(context);
    return Invoke(run_, call_, user_);
  }
  // Nobody knows before the first run.
  bool depends_on_step() const override { return call_.has_asked_for_step(); }

 private:
  const WeftFunction run_;
  const void* const user_;
  KernelCall call_;
};

// ---- Gradients.

std::string Describe(const Node& node) {
  return absl::StrCat("node '", node.name, "' (", node.domain, "::", node.op, ")");
}

class GradientCall final : public WeftCall {
 public:
  explicit GradientCall(GradientContext& context) : context_(context) {}

  const Node& node() const override { return context_.node(); }
  WeftValue InputId(int i) const override { return ToAbi(i < 0 ? kNoValue : context_.Input(i)); }
  WeftValue OutputId(int i) override {
    if (i < 0 || i >= static_cast<int>(node().schema->outputs().size())) return 0;
    return ToAbi(context_.RequireOutput(i, absl::StrCat("/output", i)));
  }
  WeftValue OutputGradient(int i) const override {
    return ToAbi(HasOutput(i) ? context_.OutputGradient(i) : kNoValue);
  }
  bool NeedsInputGradient(int i) const override {
    return HasInput(i) && context_.NeedsInputGradient(i);
  }
  void SetInputGradient(int i, WeftValue gradient) override {
    if (!RequireInput(i) || gradient == 0 || !context_.NeedsInputGradient(i)) return;
    const ValueId id(gradient - 1);
    if (IsKnown(id)) context_.SetInputGradient(i, id);
  }
  void AddNode(const std::string& domain, const std::string& op, std::vector<ValueId> inputs,
               Attributes attributes, WeftValue* outputs, int num_outputs) override {
    for (const ValueId id : inputs) {
      if (id.valid() && !IsKnown(id)) return;
    }
    const std::vector<ValueId> made = context_.builder().Ops(
        domain, op, std::move(inputs), std::move(attributes), std::vector<bool>(num_outputs, true));
    for (size_t k = 0; k < made.size() && k < static_cast<size_t>(num_outputs); ++k) {
      outputs[k] = ToAbi(made[k]);
    }
  }
  WeftValue Constant(int32_t dtype, double value) override {
    const absl::StatusOr<Tensor> tensor =
        IsValidDType(dtype) ? CastTensor(Tensor::Scalar<double>(value), static_cast<DType>(dtype))
                            : absl::InvalidArgumentError("there is no such element type");
    if (!tensor.ok()) {
      Fail(absl::StrCat("constant of element type ", dtype, ": ",
                        std::string(tensor.status().message())));
      return 0;
    }
    return ToAbi(context_.builder().Constant(*tensor));
  }

 private:
  static WeftValue ToAbi(ValueId id) { return id.valid() ? id.value + 1 : 0; }
  bool IsKnown(ValueId id) const {
    const Graph& graph = context_.graph();
    if (id.valid() && id.value < graph.value_capacity() && graph.is_live(id)) return true;
    Fail("the gradient rule used a value that is not one of the graph");
    return false;
  }

  GradientContext& context_;
};

}  // namespace

absl::Status InferCustomOp(const WeftOpDescriptor& op, InferenceContext& context) {
  InferCall call(context);
  const absl::Status status = Invoke(op.infer, call, op.user);
  return status.ok() ? call.CheckAllSet() : context.Error(std::string(status.message()));
}

absl::Status AddCustomGradient(const WeftOpDescriptor& op, GradientContext& context) {
  GradientCall call(context);
  const absl::Status status = Invoke(op.gradient, call, op.user);
  if (status.ok()) return context.builder().status();
  return absl::InvalidArgumentError(
      absl::StrCat("gradient of ", Describe(context.node()), ": ", std::string(status.message())));
}

double CustomOpFlops(const WeftOpDescriptor& op, const NodeView& view) {
  CostCall call(view);
  const double flops = op.flops(&Host(), &call, op.user);
  const double elements = static_cast<double>(view.OutputShape(0).num_elements());
  return call.failed() || !(flops >= 0) ? elements : flops;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareCustomKernel(const WeftOpDescriptor& op,
                                                            WeftFunction run,
                                                            const PrepareContext& context,
                                                            LoopRunner* loops) {
  return std::make_unique<CustomKernel>(run, op.user, context, loops);
}

const Node& NodeOfCall(const WeftCall& call) { return call.node(); }

int LoopThreads(const WeftCall& call) { return call.loop_threads(); }

int32_t AttributeToAbi(const Attributes& attributes, const char* name, WeftAttribute* attribute) {
  if (name == nullptr) return 0;
  const auto& items = attributes.items();
  const auto item = items.find(name);
  if (item == items.end()) return 0;
  *attribute = WeftAttribute{};
  attribute->name = item->first.c_str();
  if (const auto* i = std::get_if<int64_t>(&item->second)) {
    attribute->type = WEFT_INT;
    attribute->i = *i;
  } else if (const auto* f = std::get_if<float>(&item->second)) {
    attribute->type = WEFT_FLOAT;
    attribute->f = *f;
  } else if (const auto* s = std::get_if<std::string>(&item->second)) {
    attribute->type = WEFT_STRING;
    attribute->s = s->data();
    attribute->count = s->size();
  } else if (const auto* ints = std::get_if<std::vector<int64_t>>(&item->second)) {
    attribute->type = WEFT_INTS;
    attribute->ints = ints->data();
    attribute->count = ints->size();
  } else if (const auto* floats = std::get_if<std::vector<float>>(&item->second)) {
    attribute->type = WEFT_FLOATS;
    attribute->floats = floats->data();
    attribute->count = floats->size();
  } else {
    return 0;
  }
  return 1;
}

Attributes AttributesFromAbi(const WeftAttribute* attributes, int32_t count) {
  Attributes result;
  for (int32_t k = 0; k < count; ++k) {
    const WeftAttribute& a = attributes[k];
    switch (a.type) {
      case WEFT_INT:
        result.Set(a.name, a.i);
        break;
      case WEFT_FLOAT:
        result.Set(a.name, a.f);
        break;
      case WEFT_STRING:
        result.Set(a.name, std::string(a.s, a.count));
        break;
      case WEFT_INTS:
        result.Set(a.name, std::vector<int64_t>(a.ints, a.ints + a.count));
        break;
      default:
        result.Set(a.name, std::vector<float>(a.floats, a.floats + a.count));
    }
  }
  return result;
}

}  // namespace weft
