r"""Linear diagonal recurrences, compiled.

.. math::
    z_t = a_t \odot z_{t-1} + b_t, \qquad
    \bar b_t = \bar z_t + a_{t+1}^* \odot \bar b_{t+1}, \qquad
    \bar a_t = \bar b_t \odot z_{t-1}^*

Sequences and blocks of neurons are what threads share; a thread takes its neurons through all time
steps, which reads every number once. States are (B, T, K) and x is [a; b], (B, T, 2 K); complex
numbers are 2 K real ones, real parts first.
"""

# mypy: ignore-errors

from tauflow.kernels.cpu.jit import inline, kernel


@inline
def _block(task, blocks, width):
    """Return a task's sequence, its first neuron, and the one after its last."""
    sequence, block = task // blocks, task % blocks
    return sequence, width * block // blocks, width * (block + 1) // blocks


@kernel
def real_forward(slice, low, high, blocks, x, first, out):
    """Write all states."""
    steps, width = out.shape[1], out.shape[2]
    for task in range(low, high):
        i, start, stop = _block(task, blocks, width)
        before = first[i, start:stop]
        for t in range(steps):
            a, b = x[i, t, start:stop], x[i, t, width + start : width + stop]
            z = out[i, t, start:stop]
            for n in range(stop - start):
                z[n] = a[n] * before[n] + b[n]
            before = z


@kernel
def complex_forward(slice, low, high, blocks, x, first, out):
    """Write all states."""
    steps, width = out.shape[1], out.shape[2] // 2
    for task in range(low, high):
        i, start, stop = _block(task, blocks, width)
        left, right = width + start, width + stop
        before_re, before_im = first[i, start:stop], first[i, left:right]
        for t in range(steps):
            a, b = x[i, t, : 2 * width], x[i, t, 2 * width :]
            a_re, a_im, b_re, b_im = a[start:stop], a[left:right], b[start:stop], b[left:right]
            re, im = out[i, t, start:stop], out[i, t, left:right]
            for n in range(stop - start):
                new_re = a_re[n] * before_re[n] - a_im[n] * before_im[n] + b_re[n]
                new_im = a_re[n] * before_im[n] + a_im[n] * before_re[n] + b_im[n]
                re[n], im[n] = new_re, new_im
            before_re, before_im = re, im


@kernel
def real_backward(slice, low, high, blocks, x, first, out, grad_out, gradients):
    """Write the gradients."""
    steps, width = out.shape[1], out.shape[2]
    for task in range(low, high):
        i, start, stop = _block(task, blocks, width)
        carry = gradients.first[i, start:stop]
        for t in range(steps - 1, -1, -1):
            before = out[i, t - 1, start:stop] if t > 0 else first[i, start:stop]
            a, g = x[i, t, start:stop], grad_out[i, t, start:stop]
            grad_a = gradients.x[i, t, start:stop]
            grad_b = gradients.x[i, t, width + start : width + stop]
            for n in range(stop - start):
                g_n = g[n] + carry[n]
                grad_b[n] = g_n
                grad_a[n] = g_n * before[n]
                carry[n] = a[n] * g_n


@kernel
def complex_backward(slice, low, high, blocks, x, first, out, grad_out, gradients):
    """Write the gradients."""
    steps, width = out.shape[1], out.shape[2] // 2
    for task in range(low, high):
        i, start, stop = _block(task, blocks, width)
        left, right = width + start, width + stop
        c_re, c_im = gradients.first[i, start:stop], gradients.first[i, left:right]
        for t in range(steps - 1, -1, -1):
            before_re = out[i, t - 1, start:stop] if t > 0 else first[i, start:stop]
            before_im = out[i, t - 1, left:right] if t > 0 else first[i, left:right]
            a_re, a_im = x[i, t, start:stop], x[i, t, left:right]
            g_re, g_im = grad_out[i, t, start:stop], grad_out[i, t, left:right]
            grad_a, grad_b = gradients.x[i, t, : 2 * width], gradients.x[i, t, 2 * width :]
            grad_a_re, grad_a_im = grad_a[start:stop], grad_a[left:right]
            grad_b_re, grad_b_im = grad_b[start:stop], grad_b[left:right]
            for n in range(stop - start):
                re, im = g_re[n] + c_re[n], g_im[n] + c_im[n]
                grad_b_re[n], grad_b_im[n] = re, im
                grad_a_re[n] = re * before_re[n] + im * before_im[n]
                grad_a_im[n] = im * before_re[n] - re * before_im[n]
                c_re[n] = a_re[n] * re + a_im[n] * im
                c_im[n] = a_re[n] * im - a_im[n] * re
