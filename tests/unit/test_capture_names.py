"""What kernels of a capture are called, and which pass they belong to."""

from __future__ import annotations

import pytest
from tests.profiler_traces import scalar, tensor

from joulewise.domain.passes import Pass, is_communication_kernel
from joulewise.domain.trace import Collective, KernelSignature
from joulewise.domain.workload import Dtype
from joulewise.workload.capture.kernel_traits import format_of_name, is_product_name
from joulewise.workload.capture.labels import distinct, kernel_labels
from joulewise.workload.capture.names import short_name
from joulewise.workload.capture.passes import pass_of_signature, passes_of_launches

F, B, U, C = Pass.FORWARD, Pass.BACKWARD, Pass.OPTIMIZER, Pass.COMMUNICATION
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (ADD, "vectorized_elementwise_kernel CUDAFunctor_add"),
        (
            (
                "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous "
                "namespace)::OpaqueType<2u>, unsigned int, 4, 64, 64>(at::native::(anonymous)*)"
            ),
            "CatArrayBatchedCopy",
        ),
        (
            (
                "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
                "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor"
                "<float> > >(at::TensorIteratorBase&)>(int, float)"
            ),
            "elementwise_kernel MulFunctor",
        ),
        (
            (
                "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn>"
                "(T1::Params)"
            ),
            "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn",
        ),
        ("_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27R", "ck_tile::kentry::Rmsnorm2dFwd"),
        (
            (
                "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
                "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)"
            ),
            "vllm::fused_add_rms_norm_kernel",
        ),
        (
            "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1",
            "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs 256x192x64",
        ),
        ("<<<>>>", "<<<>>>"),
        ("a\x00b\x1b[31m\u202e", "a b [31m"),
        ("", "kernel"),
    ],
)
def test_names_are_cut_to_what_tells_kernels_apart(name: str, short: str) -> None:
    assert short == short_name(name)


def labels(*signatures: KernelSignature) -> list[str]:
    return list(kernel_labels(dict(enumerate(signatures))).values())


def test_labels_begin_with_the_operation_and_its_shape() -> None:
    product = KernelSignature(
        name="ampere_bf16_s16816gemm_128x128",
        op="aten::mm",
        inputs=(tensor(4096, 11008), tensor(11008, 512)),
    )
    batched = KernelSignature(
        name="gemm",
        op="aten::baddbmm",
        inputs=(tensor(1), tensor(8, 16, 32), tensor(8, 32, 64), scalar(1)),
    )
    stream = KernelSignature(name=ADD, op="aten::add", inputs=(tensor(4), tensor(64, 4), scalar(1)))

    assert [
        "mm[4096x512x11008] ampere_bf16_s16816gemm_128x128",
        "baddbmm[8x16x64x32] gemm",
        "add[64x4] vectorized_elementwise_kernel CUDAFunctor_add",
        "plain",
    ] == labels(product, batched, stream, KernelSignature(name="plain"))


@pytest.mark.parametrize(
    ("name", "collective", "expected"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*)", None, "all_reduce"),
        ("ncclKernel_ReduceScatter_RING", "_reduce_scatter_base", "reduce_scatter"),
        ("ncclKernel_SendRecv_RING", "all_to_allv", "all_to_allv"),
        ("ncclKernel_SendRecv_RING", None, "send_recv"),
        ("k", "barrier", "barrier"),
        ("k", "any thing", "record_param_comms"),
    ],
)
def test_what_pytorch_calls_communication_is_named_by_its_collective(
    name: str, collective: str | None, expected: str
) -> None:
    signature = KernelSignature(
        name=name, op="record_param_comms", collective=Collective(name=collective)
    )

    (label,) = labels(signature)

    assert expected == label.partition(" ")[0]


def test_labels_alike_are_numbered_by_what_tells_the_kernels_apart() -> None:
    small, large = (KernelSignature(name="k", grid=(size, 1, 1)) for size in (2, 4))
    odd = KernelSignature(name="k #2")

    assert ["k", "k #2", "k #2 #2"] == labels(small, large, odd)
    assert ["k #2", "k"] == labels(large, small)  # however they come


def test_labels_are_short_and_distinct_however_long_and_alike_names_are() -> None:
    many = [KernelSignature(name="x" * 5000, grid=(size, 1, 1)) for size in range(1, 200)]

    made = labels(*many)

    assert len(many) == len(set(made))
    assert {True} == {len(label) <= 80 for label in made}
    assert made[0] == "x" * 53 + "…" + "x" * 26


def test_distinct_texts_avoid_those_that_are_taken() -> None:
    assert ("b", "a #2", "a #3", "b #2") == distinct(("b", "a", "a", "b"), taken=("a",))


@pytest.mark.parametrize(
    ("name", "op", "expected"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", None, C),
        ("multimem_all_reduce_kernel", None, C),
        ("copy", "c10d::_allgather_base_", C),
        ("void at::native::reduce_kernel<512, 1>", "aten::sum", None),
        ("layer_norm_grad_input_kernel", None, B),
        ("flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", None, B),
        ("cudnn::bn_bw_1C11_kernel_new", None, B),
        ("gemm", "aten::convolution_backward", B),
        ("split_embedding_backward_codegen_rowwise_adagrad", None, B),
        ("multi_tensor_apply_kernel<FusedAdamMathFunctor>", "aten::_fused_adamw_", U),
        ("elementwise", "aten::_foreach_mul_", U),
        ("elementwise_kernel<silu(at::Tensor&)::{lambda()#1}>", "aten::silu", None),
        ("gemm", "aten::mm", None),
    ],
)
def test_names_tell_passes(name: str, op: str | None, expected: Pass | None) -> None:
    assert expected is pass_of_signature(KernelSignature(name=name, op=op))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", True),
        ("void ncclKernel_Broadcast", True),
        ("rcclGenericKernel", True),
        ("void vllm::cross_device_reduce_1stage<half, 8>", True),
        ("nvshmemi_put", True),
        ("reduce_kernel", False),
        ("gather_kernel", False),
        ("", False),
    ],
)
def test_names_tell_communication(name: str, *, expected: bool) -> None:
    assert expected is is_communication_kernel(name)


def test_metadata_of_a_collective_tells_communication() -> None:
    signature = KernelSignature(name="kernel", collective=Collective())

    assert C is pass_of_signature(signature)


def test_launches_of_unknown_pass_take_it_from_their_neighbours() -> None:
    none = None
    given = [none, F, none, none, none, none, none, none, none, none, none]
    named = [none, B, none, B, C, none, B, none, U, none, none]

    #        default, the mark wins, default, then within backward, ...
    expected = (F, F, F, B, C, B, B, U, U, F, F)

    assert expected == passes_of_launches(given, named)


def test_products_between_backward_and_the_optimizer_are_backward() -> None:
    none = None
    named = [B, none, none, none, U, none, U]
    is_product = [False, False, True, False, False, True, False]

    #            up to the last product, then clipping; optimizers multiply, too
    assert (B, B, B, U, U, U, U) == passes_of_launches([none] * 7, named, is_product)
    assert (F, F) == passes_of_launches([none] * 2, [none] * 2, [True, True])


def test_what_follows_the_last_backward_launch_is_backward_without_an_optimizer() -> None:
    assert (B, B) == passes_of_launches([None, None], [B, None])


@pytest.mark.parametrize(
    ("name", "is_product"),
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_execute_segment_k_off_kernel__5x_cublas", True),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_execute_split_k_kernel__5x_cublas", False),
        ("void cublasLt::splitKreduce_kernel<32, 16>(float*)", False),
        ("nvjet_tst_144x128_64x6_2x1_v_bz_bias_TNN", True),
        ("void pytorch_flash::flash_fwd_kernel<traits>(Params)", True),
        ("void pytorch_flash::flash_bwd_dot_do_o_kernel<true>(Params)", False),
        ("void cudnn::ops::nchwToNhwcKernel<float>(float*)", False),
        ("void vllm::reshape_and_cache_flash_kernel<half>(half*)", False),
        ("void fbgemm_gpu::permute_2D_data_kernel<false>(int)", False),
        ("volta_sgemm_64x64_nt", True),
        ("triton_tem_fused_addmm_3", True),
        ("triton_poi_fused_add_mm_3", False),
    ],
)
def test_names_tell_products_from_their_helpers(name: str, is_product: bool) -> None:  # noqa: FBT001
    assert is_product is is_product_name(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", Dtype.BF16),
        ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32", Dtype.TF32),
        ("cutlass_80_tensorop_s1688gemm_128x64_32x6_nt_align1", Dtype.TF32),
        ("ampere_fp16_s16816gemm_fp16_128x64", Dtype.FP16),
        ("volta_fp16_s884gemm_fp16_256x128", Dtype.FP16),
        ("fmhaSm100aKernel_QkvE4m3OBfloat16H64", Dtype.FP8),
        ("volta_dgemm_64x64_nn", Dtype.FP64),
        ("volta_sgemm_64x64_nt", Dtype.FP32),
    ],
)
def test_names_tell_number_formats(name: str, expected: Dtype) -> None:
    assert expected is format_of_name(name)
